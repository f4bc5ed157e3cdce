"""The teachers of distillation: models or files of vectors, pinned, and what they say of rows."""

from tmde.training.teachers.vectors import (
    RunTeachers,
    TeacherVectors,
    open_teacher_vectors,
    prepare_teacher_vectors,
)
from tmde.training.teachers.versions import TeacherVersion, find_version

__all__ = [
    "RunTeachers",
    "TeacherVectors",
    "TeacherVersion",
    "find_version",
    "open_teacher_vectors",
    "prepare_teacher_vectors",
]
