"""The recipes of the papers, which training finds as data."""

import subprocess
import sys

from tmde.training.packaged_files import yaml_files
from tmde.training.recipe import packaged_names

PROGRAM = """
import sys
from tmde.training.packaged_files import recipe_files
assert "LASER_6" in recipe_files()["laser_6"].read_text(encoding="utf-8")
print(*(name for name in sys.modules if name.startswith("tmde.papers")))
"""


def test_recipes_are_found_without_the_code_of_the_papers():
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert process.stdout.split() == ["tmde.papers"]


def test_names_of_recipes_differ_between_the_packages():
    own_names = list(yaml_files("tmde.training", "recipes"))
    names_of_papers = list(yaml_files("tmde.papers", "recipes"))
    assert packaged_names() == sorted(own_names + names_of_papers)
