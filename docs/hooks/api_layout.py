"""The packages in the layout that a wheel installs, made of links.

`setup.cfg` maps the folders of the repository into `tmde`, and mkdocstrings reads files rather than
installed packages, so that it shows the code beside which the pages stand.
"""

import configparser
import shutil
from pathlib import Path


def link_packages(root: Path, folder: Path) -> None:
    """Link every package that `setup.cfg` names to its place in `folder`."""
    setup = configparser.ConfigParser()
    setup.read(root / "setup.cfg", encoding="utf-8")
    mapping = {}
    for line in setup["options"]["package_dir"].strip().splitlines():
        package, _, source = line.partition("=")
        mapping[package.strip()] = root / source.strip()
    for package, source in mapping.items():
        place = folder.joinpath(*package.split("."))
        if any(other.startswith(f"{package}.") for other in mapping):
            # Other packages are mapped into this one, so it is a folder. Its files are copies:
            # griffe follows links and would look for the other packages beside the originals.
            place.mkdir(exist_ok=True)
            for file in source.glob("*.py"):
                shutil.copy(file, place)
        elif not place.exists():
            place.parent.mkdir(exist_ok=True)
            place.symlink_to(source)
