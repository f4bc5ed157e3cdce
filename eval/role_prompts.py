"""The prompts that a model puts before queries and before documents."""

from typing import Literal

from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.model_files import DOCUMENT_PROMPTS

# What texts are in a search; None where all texts have the same role.
Role = Literal["query", "document"] | None

# The names of the prompts of each role, as in `encode_query` and `encode_document`: the first that
# a model has counts.
PROMPTS_OF_ROLES = {"query": ("query",), "document": DOCUMENT_PROMPTS}


def prompt_of_role(embedder: DocumentEmbedder, role: Role) -> str:
    """Return the prompt with which `encode`, `encode_query` or `encode_document` reads texts.

    Args:
        embedder: The embedder.
        role: The role of the texts; None for `encode`.
    """
    if role is not None:
        for name in PROMPTS_OF_ROLES[role]:
            if name in embedder.prompts:
                return embedder.prompts[name]
    return embedder.prompt
