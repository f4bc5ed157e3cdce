"""Former name of `modeling_tmde.cli.errors`; it goes when its users have moved."""

from modeling_tmde.cli.errors import CommandGroup, describe_error

sentence = describe_error
__all__ = ["CommandGroup", "sentence"]
