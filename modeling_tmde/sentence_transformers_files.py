"""Files beside the weights by which sentence-transformers opens a checkpoint of this package.

    SentenceTransformer(folder, trust_remote_code=True).encode(["Guten Tag", "Good day"])

gives the vectors of `DocumentEmbedder`: a Transformer module, and a Pooling module that takes position 0 of
`last_hidden_state`, where every model of this package has its embedding. There is no Normalize module.
"""

import json
import os
from pathlib import Path

from transformers import PreTrainedModel

from .loading import NO_LIMIT, encoder_body, position_limit
from .text_languages import needs_language

# The names of version 5, which later ones read too.
_TRANSFORMER = "sentence_transformers.models.Transformer"
_POOLING = "sentence_transformers.models.Pooling"


def write_sentence_transformers_files(model: PreTrainedModel, folder: str | os.PathLike) -> None:
    """Writes `modules.json`, `sentence_bert_config.json`, `1_Pooling/config.json`, and, unless there is one,
    `config_sentence_transformers.json`, which users edit: it has prompts and the similarity, by default cosine.

    The longest input is that of `DocumentEmbedder.max_length`. Of a model with positions, sentence-transformers takes
    the smaller of `max_position_embeddings` and the tokenizer's `model_max_length`; a model without reads any length,
    whatever its tokenizer says. To a model with a part for each language it passes on
    `encode(texts, language="de")`.

    Args:
        model: With or without a decoder or a head.
        folder: Made if missing.
    """
    encoder = encoder_body(model)
    transformer: dict = {"idx": 0, "name": "0", "path": "", "type": _TRANSFORMER}
    if needs_language(encoder):
        transformer["kwargs"] = ["language"]
    pooling = {"idx": 1, "name": "1", "path": "1_Pooling", "type": _POOLING}
    limit = {"max_seq_length": NO_LIMIT} if position_limit(encoder) == NO_LIMIT else {}
    files = {
        "modules.json": [transformer, pooling],
        "sentence_bert_config.json": limit | {"do_lower_case": False},
        "1_Pooling/config.json": {
            "word_embedding_dimension": encoder.config.hidden_size,
            "pooling_mode_cls_token": True,
            "pooling_mode_mean_tokens": False,
            "pooling_mode_max_tokens": False,
            "include_prompt": True,
        },
    }
    if not (Path(folder) / "config_sentence_transformers.json").exists():
        files["config_sentence_transformers.json"] = {
            "model_type": "SentenceTransformer",
            "prompts": {},
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        }
    for name, content in files.items():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
