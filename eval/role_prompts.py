"""The prompts that a model puts before queries and before documents."""

from typing import Literal

from tmde.embedding.document_embedder import DocumentEmbedder

# What texts are in a search; None where all texts have the same role.
Role = Literal["query", "document"] | None


def prompt_of_role(embedder: DocumentEmbedder, role: Role) -> str:
    """Return the prompt with which `encode`, `encode_query` or `encode_document` reads texts.

    Args:
        embedder: The embedder.
        role: The role of the texts; None for `encode`.
    """
    if role is None:
        return embedder.prompt
    return embedder.prompts[role] or ""
