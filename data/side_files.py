"""Files that stand beside the data of a folder: hidden ones, README.md, settings in JSON."""

from collections.abc import Sequence
from pathlib import PurePosixPath

_ABOUT_THE_FOLDER = ("readme", "license", "licence", "notice", "changelog")


def without_side_files(names: Sequence[str]) -> list[str]:
    """Return the files of a folder that hold its data.

    Hidden files hold none. Neither does README.md, LICENSE.txt or the like, nor .json, which is
    often settings; but they are data where a folder has nothing else.

    Args:
        names: Files of known suffixes, relative to the folder, with `/` between the parts.
    """
    data_names = [name for name in names if not _is_hidden(name)]
    for is_side_file in (_is_about_the_folder, _is_json):
        remaining_names = [name for name in data_names if not is_side_file(name)]
        if remaining_names:
            data_names = remaining_names
    return data_names


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _is_about_the_folder(name: str) -> bool:
    path = PurePosixPath(name.lower().removesuffix(".gz"))
    return path.suffix in (".md", ".txt") and path.stem in _ABOUT_THE_FOLDER


def _is_json(name: str) -> bool:
    return name.lower().removesuffix(".gz").endswith(".json")
