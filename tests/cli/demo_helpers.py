"""Documents of the tests of `tmde demo`, and the command itself."""

import json

from typer.testing import CliRunner

from modeling_tmde.cli.main import app

ROWS = [
    {"id": "a", "text": "casa perro. Gato árbol.", "language": "es", "title": "Casa", "label": "home"},
    {"id": "b", "text": "haus hund. Katze baum.", "language": "de", "title": "Haus", "label": "home"},
    {"id": "c", "text": "fluss stadt. Licht nacht.", "language": "de", "title": "Fluss", "label": "town"},
    {"id": "d", "text": "pan agua " * 60, "language": "es", "title": None, "label": None},
    {"id": "e", "text": "town light", "language": None, "title": None, "label": "town"},
]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def run(*arguments, **kwargs):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **kwargs)
