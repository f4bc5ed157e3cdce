"""The reference of the training arguments, made from the table that the trainer checks."""

import dataclasses

from transformers import TrainingArguments

from tmde.training.argument_table import HONORED, REFUSED


def arguments_markdown() -> str:
    """Return a table of the honored arguments of transformers, and one of the refused ones."""
    honored = ["| argument | effect |", "|---|---|"]
    refused = ["| argument | why it is refused | instead |", "|---|---|---|"]
    for field in dataclasses.fields(TrainingArguments):
        if field.name in HONORED:
            honored.append(f"| `{field.name}` | {HONORED[field.name]} |")
        else:
            refusal = REFUSED[field.name]
            refused.append(f"| `{field.name}` | {refusal.reason} | {refusal.instead} |")
    return "\n".join(["## Honored", "", *honored, "", "## Refused", "", *refused, ""])
