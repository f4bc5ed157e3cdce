"""A bag that begins with the token vectors of an encoder of the Hub, so that it knows words before it is trained."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from modeling_tmde import TmdeError
from modeling_tmde.modeling_bag import BagModel
from modeling_tmde.tokenization import cut_tokenizer, edited, load_tokenizer
from tmde.data.tokens import TextEncoder, text_bounds
from tmde.embedding.document_embedder import mean_pooled
from tmde.embedding.loading import local_or_hub
from tmde.embedding.progress import progress_bar
from tmde.training.hub_encoder import open_encoder, token_settings
from tmde.training.recipe import Recipe
from tmde.training.warm_start import fit_width

RARE = 1e-4  # share of the tokens of a text at which a token's weight is half of a rare one's
BATCH_SIZE = 512  # tokens, each a text
WORD = re.compile(r"[^\W\d_]{3,}")


@torch.no_grad()
def save_encoder_bag(recipe: Recipe, encoder: str, texts: Iterable[str], folder: Path) -> None:
    """Saves a bag and its tokenizer that begin with an encoder, before any training.

    The tokenizer is the encoder's, cut to the tokens of the texts. Frequent words of which it makes several tokens
    become tokens. The vector of a token is the mean of the encoder's outputs for that token or word alone, between
    its special tokens; of these vectors the mean is removed. A bag that is as wide as the encoder so begins in its
    space; a narrower one has the leading principal directions. The weight of a token with the relative frequency f is
    `1e-4 / (1e-4 + f)` (Arora et al. 2017, smooth inverse frequency).

    Args:
        recipe: Of a bag: `model.d_model`, at most the encoder's width. In the section `tokenizer`: `vocab_size`, the
            most tokens; `lowercase`, see `cut_tokenizer`; and `whole_words`, how many of the tokens are such words.
        encoder: Folder or Hub id of an encoder whose tokenizer can be cut, see `cut_tokenizer`.
        texts: In all languages of the run.
        folder: Where the checkpoint will be.

    Raises:
        RecipeError: The encoder can't be opened.
        ValueError: Its tokenizer can't be cut, `whole_words` does not fit, or it is narrower than the bag.
    """
    texts, options = list(texts), recipe.sections["tokenizer"]
    size, lowercase, number = (
        options.get("vocab_size"),
        options.get("lowercase", False),
        options.get("whole_words", 0),
    )
    model = open_encoder(encoder)
    full = load_tokenizer(local_or_hub(encoder), trust_remote_code=False)
    tokenizer, kept = cut_tokenizer(full, texts, size and size - number, lowercase=lowercase)
    outside = number and len(tokenizer) - tokenizer.backend_tokenizer.get_vocab_size(
        with_added_tokens=False
    )
    if outside or (size and size <= number):
        found = f"vocab_size={size} and {outside} tokens outside the encoder's vocabulary"
        raise TmdeError(
            f"tokenizer.whole_words={number}: found {found}, expected a larger size and none"
        )
    tokenizer, words = add_words(
        tokenizer, (text.lower() for text in texts) if lowercase else texts, number
    )
    bos, eos, _ = text_bounds(full)
    pieces = [[token] for token in kept] + [
        full(word, add_special_tokens=False)["input_ids"] for word in words
    ]
    table = []
    for start in progress_bar(range(0, len(pieces), BATCH_SIZE), desc="Token vectors"):
        rows = [torch.tensor([bos, *tokens, eos]) for tokens in pieces[start : start + BATCH_SIZE]]
        ids = pad_sequence(
            rows, batch_first=True, padding_value=full.pad_token_id
        )  # (tokens, length)
        mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        table.append(mean_pooled(model(input_ids=ids, attention_mask=mask).last_hidden_state, mask))
    settings = {
        name: value for name, value in token_settings(full).items() if name.endswith("_token_id")
    }
    del settings["decoder_start_token_id"]
    ids = {old: new for new, old in enumerate(kept)}
    config = recipe.build_config(
        vocab_size=len(tokenizer), **{name: ids[old] for name, old in settings.items()}
    )
    bag = BagModel(config)
    vectors = torch.cat(table)  # (tokens, width)
    width = vectors.shape[1]
    if config.d_model > width:
        raise TmdeError(
            f"model.d_model={config.d_model}: expected at most {width}, the width of {encoder}"
        )
    vectors = fit_width(vectors - vectors.mean(dim=0), torch.zeros(len(vectors)), config.d_model)
    bag.embed_tokens.weight.copy_(vectors / vectors.norm(dim=1).mean())
    used = np.fromiter(itertools.chain.from_iterable(TextEncoder(tokenizer)(texts)), dtype=np.int64)
    counts = torch.from_numpy(np.bincount(used, minlength=len(tokenizer)))
    weights = torch.log(RARE / (RARE + counts / counts.sum())).float()
    special = torch.tensor(bag.config.special_token_ids)
    bag.token_weights.copy_(weights.index_copy(0, special, bag.token_weights[special]))
    bag.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def add_words(
    tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], number: int
) -> tuple[PreTrainedTokenizerBase, list[str]]:
    """The tokenizer with the most frequent words of the texts that it splits, as its last entries; and these words.

    In a Unigram vocabulary, the score of a word is the logarithm of its share of all words.
    """
    counts = (
        Counter(itertools.chain.from_iterable(map(WORD.findall, texts))) if number else Counter()
    )
    ids = tokenizer(list(counts), add_special_tokens=False)["input_ids"] if counts else []
    split = {word for word, tokens in zip(counts, ids, strict=True) if len(tokens) > 1}
    words = [word for word, _ in counts.most_common() if word in split][:number]

    def edit(content: dict) -> None:
        vocab = content["model"]["vocab"]
        if content["model"]["type"] == "Unigram":
            vocab.extend([f"▁{word}", math.log(counts[word] / counts.total())] for word in words)
        else:
            vocab.update(zip(words, itertools.count(len(vocab))))

    return edited(tokenizer, edit) if words else tokenizer, words
