"""Started by `test_train.py`: trains a recipe, and after step `hold_at` says so in a file and waits to be killed."""

import json
import sys
import time
from pathlib import Path

from modeling_tmde.training.callbacks import RunSchedule
from modeling_tmde.training.recipe import load_recipe
from modeling_tmde.training.train import train_recipe


def main() -> None:
    options = json.loads(sys.argv[1])
    go_on = RunSchedule.on_step_begin

    def hold(self, args, state, control, **kwargs):
        if state.global_step == options["hold_at"]:
            Path(options["held"]).touch()
            time.sleep(600)
        return go_on(self, args, state, control, **kwargs)

    RunSchedule.on_step_begin = hold
    train_recipe(load_recipe("quickstart", options["overrides"]), options["output"])


if __name__ == "__main__":
    main()
