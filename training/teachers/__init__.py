"""The teachers of distillation: models or files of vectors, and their vectors of the rows."""

from tmde.training.teachers.vectors import Teachers, TeacherVectors, open_teachers
from tmde.training.teachers.versions import TeacherVersion, find_version

__all__ = ["TeacherVectors", "TeacherVersion", "Teachers", "find_version", "open_teachers"]
