"""Started by `torchrun` in `test_teacher_version.py`: settles a teacher that only the first process may look up."""

import json
import sys
from pathlib import Path

from accelerate import PartialState

from modeling_tmde.training import teacher_version
from modeling_tmde.training.objectives import Distillation
from modeling_tmde.training.teacher_version import TeacherError, TeacherVersion, settle_version

if __name__ == "__main__":
    folder, state = Path(sys.argv[1]), PartialState(cpu=True)

    def find(name: str, revision: str | None = None) -> TeacherVersion:
        assert state.is_main_process, "looked up again"
        if name == "user/missing":
            raise TeacherError("found no such model")
        return TeacherVersion(name, revision, commit="0123abcd")

    teacher_version.find_version = find
    found, errors = settle_version(Distillation("user/model"), folder / "run"), []
    try:
        settle_version(Distillation("user/missing"), folder / "other")
    except TeacherError as error:
        errors.append(str(error))
    (folder / f"{state.process_index}.json").write_text(json.dumps([state.num_processes, found.commit, errors]))
    state.destroy_process_group()
