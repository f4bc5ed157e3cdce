"""Encoders of the Hub with T-MDE's bottleneck and decoder: opened, checked, and made into a model to train."""

import os
from pathlib import Path

import torch
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from modeling_tmde import TmdeError
from modeling_tmde.configuration_adapted import AdaptedConfig
from modeling_tmde.inspection import position_limit
from modeling_tmde.modeling_adapted import (
    AdaptedForConditionalGeneration,
    encoder_class,
    pooler_options,
)
from modeling_tmde.tokenization import load_tokenizer
from tmde.data.tokens import text_bounds
from tmde.embedding.loading import default_prompt, local_or_hub, reading
from tmde.training.recipe import (
    ADAPTED,
    NOT_IN_CONFIG,
    Recipe,
    RecipeError,
    architecture_of,
    section_keys,
)

WORD_START = "▁"  # of tokens of sentencepiece
PADDING = 8  # tokens behind the text that an encoder is tried on
PADDING_TOLERANCE = 1e-4  # share of the largest output


def prompt_settings(prompt: str, tokenizer: PreTrainedTokenizerBase) -> dict[str, str | list[int]]:
    """A prompt and its tokens, by the names of [`AdaptedConfig`]. A space at its end belongs to the word behind it."""
    ids = tokenizer(prompt.strip(), add_special_tokens=False)["input_ids"] if prompt else []
    return {"prompt": prompt, "prompt_ids": ids}


def token_settings(tokenizer: PreTrainedTokenizerBase) -> dict[str, int | bool | None]:
    """What a config says of the special tokens, by the names of [`AdaptedConfig`]."""
    bos, eos, reads_bos = text_bounds(tokenizer)
    tokens = {"bos_token_id": bos, "eos_token_id": eos, "decoder_start_token_id": bos}
    return tokens | {"pad_token_id": tokenizer.pad_token_id, "reads_bos": reads_bos}


def open_encoder(encoder: str | os.PathLike) -> PreTrainedModel:
    """A text encoder in float32, whose code is in transformers.

    Raises:
        RecipeError: There is none, it is a model of this package or needs code of its own, its weights are not
            complete, or its outputs are no encoder's.
    """
    try:
        name = local_or_hub(encoder)
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
        if config.model_type.startswith("tmde"):
            raise TmdeError(
                f"found a model of this package ({config.model_type!r}), which --warm-start goes on from"
            )
        AdaptedConfig(encoder_config=config)
        model_class = encoder_class(config)
        options = {
            "dtype": torch.float32,
            "output_loading_info": True,
            **pooler_options(model_class),
        }
        model, loading = model_class.from_pretrained(name, config=config, **options)
        if missing := sorted(loading["missing_keys"]):
            raise TmdeError(
                f"its weights lack {len(missing)} of a {model_class.__name__}, such as {missing[0]}"
            )
        _check_outputs(model.eval())
    except Exception as error:  # the forward pass of a model that takes no text may fail in any way
        advice = "expected a text encoder, whose code is in transformers"
        raise RecipeError(f"Encoder {encoder}: {str(error).strip()}; {advice}") from error
    return model


@torch.no_grad()
def _check_outputs(encoder: PreTrainedModel) -> None:
    """Reads a text alone, and with padding and another last token.

    Raises:
        ValueError: The model is a decoder such as GPT-2, whose outputs do not depend on later tokens, or its outputs
            depend on padding, such as FNet's.
    """
    length = max(2, min(24, position_limit(encoder) - PADDING))
    pad = max(encoder.config.pad_token_id or 0, 0)
    usable = torch.tensor(
        [token for token in range(min(length + 1, encoder.config.vocab_size)) if token != pad]
    )
    ids = usable[torch.arange(length) % len(usable)][None]  # (1, length)
    alone = encoder(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]
    both = torch.cat([ids, torch.cat([ids[:, :-1], ids[:, :1]], dim=1)])
    both = torch.nn.functional.pad(both, (0, PADDING), value=pad)  # (2, length + 8)
    mask = (torch.arange(both.shape[1]) < length).long().expand_as(both)
    padded, changed = encoder(input_ids=both, attention_mask=mask).last_hidden_state[:, :length]
    if torch.equal(padded[:-1], changed[:-1]):
        raise TmdeError(f"{type(encoder).__name__} reads from left to right, as decoders do")
    share = float((padded - alone).abs().max() / alone.abs().max())
    if not share <= PADDING_TOLERANCE:
        raise TmdeError(
            f"its outputs depend on padding: masked tokens behind a text change them by {share:.1e}"
        )


def check_encoder(recipe: Recipe) -> None:
    """Checks the encoder of a recipe before anything is deleted or trained.

    Raises:
        RecipeError: There is none, one beside a checkpoint, or one that cannot be trained.
    """
    if recipe.architecture != ADAPTED:
        return
    encoder, start = recipe.sections["model"].get("encoder"), recipe.warm_start
    bag = encoder is not None and bool(recipe.sections["model"].get("bag_residual"))
    if ((encoder is None) == (start.checkpoint is None)) != bag or start.recipe is not None:
        needs = f"Recipe {recipe.name} needs --encoder, such as xlm-roberta-base, or --warm-start with a model"
        raise RecipeError(
            f"{needs} that has an encoder, not both; with model.bag_residual, both, the latter a bag"
        )
    known = start.checkpoint and open_config(
        start.checkpoint, kind="tmde_bag" if bag else AdaptedConfig.model_type
    )
    if (bag or getattr(known, "bag_residual", 0)) and "translation" in recipe.sections[
        "objectives"
    ]:
        raise RecipeError(
            "objectives.translation: expected none with model.bag_residual, which no decoder learns"
        )
    if own := sorted(recipe.sections["tokenizer"].keys() - {"path"}):
        raise RecipeError(
            f"tokenizer: found {', '.join(own)}, but an encoder of the Hub has its own; remove it"
        )
    if encoder is None:
        teacher = recipe.sections["objectives"].get("distillation", {}).get("teacher")
        wrong = {"objectives.distillation.teacher=encoder": teacher == "encoder"}
        wrong["model.encoder_layers"] = recipe.sections["model"].get("encoder_layers")
        wrong["model.bag_residual"] = (
            recipe.sections["model"].get("bag_residual") and not known.bag_residual
        )
        for key in filter(wrong.get, wrong):
            raise RecipeError(
                f"{key} needs --encoder, found --warm-start {start.checkpoint}; remove or replace it"
            )
        return
    model, tokenizer = open_encoder(encoder), open_tokenizer(recipe)
    fit_encoder(recipe, model, tokenizer)
    last, size = max(tokenizer.get_vocab().values()), model.config.vocab_size
    if last >= size:
        raise RecipeError(
            f"Encoder {encoder}: its tokenizer has the id {last}, but the model has {size} embeddings"
        )
    recipe.build_config(encoder_config=model.config)


def open_config(
    checkpoint: str | os.PathLike, what: str = "Warm start from", kind: str = "tmde"
) -> PreTrainedConfig:
    """The config of a model of this package, whose `model_type` begins with `kind`; any where that is empty."""
    with reading(f"{what} {checkpoint}", RecipeError):
        config = AutoConfig.from_pretrained(local_or_hub(checkpoint))
        if (kind and architecture_of(config) is None) or not config.model_type.startswith(kind):
            raise TmdeError(
                f"found a model of type {config.model_type!r}, expected one of this package ({kind})"
            )
    return config


def open_tokenizer(recipe: Recipe) -> PreTrainedTokenizerBase:
    """The tokenizer of a new run: that of the model it begins with, or of the encoder.

    Raises:
        RecipeError: There is none, or it lacks what training needs: padding, and a token after every text.
    """
    path = recipe.sections["tokenizer"].get("path") or recipe.warm_start.checkpoint
    path = path or recipe.sections["model"]["encoder"]
    with reading(f"Encoder {path}", RecipeError):
        name = (
            str(path) if Path(path).is_dir() else local_or_hub(path)
        )  # a folder may hold a tokenizer alone
        tokenizer = load_tokenizer(name, trust_remote_code=False)
        if tokenizer.pad_token_id is None:
            raise TmdeError(
                "its tokenizer has no pad_token, with which texts are padded to batches"
            )
        text_bounds(tokenizer)
    return tokenizer


@torch.no_grad()
def fit_encoder(
    recipe: Recipe, encoder: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> None:
    """Leaves an encoder the layers `model.encoder_layers`, and beside a bag the tokens of the bag's tokenizer, in place.

    The row of a token that the encoder's vocabulary lacks is that of the token with a capital, or the mean of the rows
    of its pieces.

    Raises:
        RecipeError: There is no such layer.
    """
    layers, number = (
        recipe.sections["model"].get("encoder_layers"),
        encoder.config.num_hidden_layers,
    )
    if layers is not None:
        if not layers or not all(0 <= layer < number for layer in layers):
            raise RecipeError(
                f"model.encoder_layers: found {layers}, expected numbers from 0 to {number - 1}"
            )
        stacks = [
            each
            for each in encoder.modules()
            if isinstance(each, torch.nn.ModuleList) and len(each) == number
        ]
        kept = [stacks[0][layer] for layer in layers] if stacks else []
        if kept:
            del stacks[0][:]
            stacks[0].extend(kept)
        encoder.config.num_hidden_layers = len(layers)
        if types := getattr(encoder.config, "layer_types", None):
            encoder.config.layer_types = [types[layer] for layer in layers]
        try:  # what will be saved must be what a new encoder of this config opens
            type(encoder)(encoder.config, **pooler_options(type(encoder))).load_state_dict(
                encoder.state_dict()
            )
        except RuntimeError as error:
            raise RecipeError(
                f"model.encoder_layers: can't leave {type(encoder).__name__} layers {layers}"
            ) from error
    if recipe.warm_start.checkpoint is not None:
        full = load_tokenizer(
            local_or_hub(recipe.sections["model"]["encoder"]), trust_remote_code=False
        )
        ids, pieces = full.get_vocab(), []
        if strange := sorted(set(tokenizer.all_special_tokens) - ids.keys()):
            found = f"Warm start from {recipe.warm_start.checkpoint}: the encoder lacks its token {strange[0]}"
            raise RecipeError(
                f"{found}; expected a bag that began with this encoder (recipe default)"
            )
        for token, _ in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1]):
            text = token.removeprefix(WORD_START).removeprefix("##")  # of wordpieces
            known = [
                ids[name] for name in (token, token.replace(text, text.capitalize())) if name in ids
            ]
            pieces.append(
                known[:1]
                or full(text, add_special_tokens=False)["input_ids"]
                or [full.unk_token_id]
            )
        table = encoder.get_input_embeddings().weight
        rows = torch.stack([table[each].mean(dim=0) for each in pieces])
        encoder.resize_token_embeddings(len(rows), mean_resizing=False).weight.copy_(rows)


def build_adapted(
    recipe: Recipe, tokenizer: PreTrainedTokenizerBase
) -> AdaptedForConditionalGeneration:
    """A new model of a recipe with the weights of its encoder. Where it begins with a checkpoint instead, the weights are
    loaded later, and what the recipe leaves open is as it was there.

    Raises:
        RecipeError: See `open_encoder`; or sizes that do not fit together.
    """
    name, prompt = recipe.sections["model"].get("encoder"), recipe.sections["model"].get("prompt")
    if name is not None:
        encoder = open_encoder(name)
        fit_encoder(recipe, encoder, tokenizer)
        if prompt is None:
            prompt = default_prompt(local_or_hub(name))
        settings = token_settings(tokenizer) | prompt_settings(prompt, tokenizer)
        config = recipe.build_config(encoder_config=encoder.config, **settings)
        model = AdaptedForConditionalGeneration(config)
        model.take_encoder(encoder)
        return model
    known = open_config(recipe.warm_start.checkpoint, kind=AdaptedConfig.model_type)
    open_keys = (
        section_keys("model", ADAPTED).keys() - recipe.sections["model"].keys() - NOT_IN_CONFIG
    )
    values = {
        name: getattr(known, name)
        for name in open_keys | {"encoder_config", "decoder_embedding_scale"}
    }
    values |= token_settings(tokenizer) | prompt_settings(
        known.prompt if prompt is None else prompt, tokenizer
    )
    return AdaptedForConditionalGeneration(recipe.build_config(**values))
