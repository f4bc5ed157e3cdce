"""Options and the functions of the library that they are arguments of."""

import dataclasses
import inspect
from types import SimpleNamespace

import pytest

from tmde import documents
from tmde.cli import options as common
from tmde.cli.align import AlignOptions
from tmde.cli.align_words import AlignWordsOptions
from tmde.cli.calibrate import CalibrateOptions
from tmde.cli.clean import CleanOptions
from tmde.cli.dedupe import DedupeOptions
from tmde.cli.errors import with_option_names
from tmde.cli.mine import MineOptions
from tmde.documents.document_sets import Reading

FUNCTIONS = {
    AlignOptions: documents.align_files,
    AlignWordsOptions: documents.align_word_files,
    CalibrateOptions: documents.calibrate_model,
    CleanOptions: documents.clean_files,
    DedupeOptions: documents.dedupe_files,
    MineOptions: documents.mine_files,
}
# The function replaces files; the arguments of `from_pretrained` are its `loading`.
OTHER_OPTIONS = {"overwrite"}
for group in (common.ModelOptions, common.LongOptions):
    OTHER_OPTIONS |= {field.name for field in dataclasses.fields(group)}


@pytest.mark.parametrize("options", FUNCTIONS)
def test_options_are_the_arguments_of_the_function(options):
    """They have the same names; where both have a default, it is the same."""
    arguments = inspect.signature(FUNCTIONS[options]).parameters
    names = set()
    for field in dataclasses.fields(options):
        if field.name in OTHER_OPTIONS:
            continue
        names.add(field.name)
        if "reading" in arguments and field.name in Reading.__annotations__:
            continue
        if field.default not in (dataclasses.MISSING, None):
            assert field.default == arguments[field.name].default, field.name
    if "reading" in arguments:
        names -= set(Reading.__annotations__)
    assert names == set(arguments) - {"loading", "reading"}


def test_messages_name_options_in_place_of_arguments():
    parameters = []
    for name, option in (("min_probability", "--min-probability"), ("k", "-k"), ("a", "A")):
        parameters.append(SimpleNamespace(name=name, opts=[option]))
    command = SimpleNamespace(params=parameters)
    for message, expected in (
        ("min_probability, k: found 2", "--min-probability, -k: found 2"),
        ("a: found nothing; give k=4", "a: found nothing; give -k=4"),
        ("k is a letter of work/min_probability", "k is a letter of work/min_probability"),
    ):
        assert with_option_names(message, command) == expected
