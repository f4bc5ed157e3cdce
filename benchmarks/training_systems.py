"""The systems whose training is timed: T-MDE by its recipes, and peers of equal size under their stock trainers."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import datasets
import torch
from sizes import LANGUAGES, PIVOTS, Size
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertModel,
    DataCollatorForSeq2Seq,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerBase,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    Trainer,
    TrainerCallback,
)

from modeling_tmde.modeling_bag import BagModel
from modeling_tmde.training.architectures import ARCHITECTURES
from modeling_tmde.training.parallel_model import ParallelModel, translation_directions
from modeling_tmde.training.recipe import Recipe, load_recipe
from modeling_tmde.training.trainer import TmdeTrainer

INFONCE_ONLY = ["objectives.translation=null", "objectives.distance=null", "objectives.infonce={weight: 1.0}"]
ALL_LANGUAGES = ["languages_per_row=null"]
# Recipe and its overrides, by the name in the table. T-MDE trains on pairs, as in the thesis, where it says nothing.
RECIPES: dict[str, tuple[str, list[str]]] = {
    "T-MDE": ("tmde", []),
    "cT-MDE": ("ctmde", []),
    "T-MDE_P": ("tmde", ["model.bottleneck=pyramid"]),
    "T-MDE_F": ("tmde", ["model.bottleneck=full"]),
    "LASER_1": ("laser_1", []),
    "LASER_6": ("laser_6", []),
    "cLASER_6": ("claser_6", []),
    "T-MDE, all languages of a row": ("tmde", ALL_LANGUAGES),
    "cT-MDE, all languages of a row": ("ctmde", ALL_LANGUAGES),
    "T-MDE_P, all languages of a row": ("tmde", ["model.bottleneck=pyramid", *ALL_LANGUAGES]),
    "T-MDE's encoder, InfoNCE alone": ("ctmde", INFONCE_ONLY),
}
PEERS = (
    "Marian, Seq2SeqTrainer",
    "Marian, Seq2SeqTrainer, by length",
    "BERT, SentenceTransformerTrainer",
)


@dataclass
class Counts:
    """What a run has trained on so far, without padding.

    rows; encoder_tokens, decoder_tokens: given to either; padded_tokens: the encoder's, padding included; words: of
    source and target, of every direction that is trained; flops: operations of matrix products with weights that
    these tokens need; data_wait: seconds that T-MDE's trainer waited for batches (others do not say).
    """

    rows: int = 0
    encoder_tokens: int = 0
    decoder_tokens: int = 0
    padded_tokens: int = 0
    words: int = 0
    flops: float = 0.0
    data_wait: float = 0.0

    def add(self, other: "Counts") -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass
class Clock(TrainerCallback):
    """Time and counts at the end of every step; a GPU is waited for at those of `waits`, or at all."""

    counts: Counts
    waits: tuple[int, ...] | None = None
    ticks: list[tuple[float, Counts]] = field(default_factory=list)

    def on_step_end(self, args, state, control, **kwargs):
        if torch.cuda.is_available() and (self.waits is None or state.global_step in self.waits):
            torch.cuda.synchronize()
        self.ticks.append((time.perf_counter(), Counts(**vars(self.counts))))


@dataclass
class System:
    """A trainer ready to run, and what it counts."""

    trainer: Trainer
    counts: Counts
    parameters: int


def weights(module: torch.nn.Module, but: tuple[str, ...] = ()) -> int:
    """Matrix entries that every token is multiplied by: no embedding tables, no biases and norms."""
    return sum(
        child.weight.numel()
        for name, child in module.named_modules()
        if isinstance(child, torch.nn.Linear) and not name.startswith(but)
    )


# ------------------------------------------------------------------------------------------------------------- T-MDE


class CountingTrainer(TmdeTrainer):
    """Counts what it trains on, `Counts`."""

    counts: Counts

    def _account(self, batch) -> None:
        super()._account(batch)
        parallel: ParallelModel = self.accelerator.unwrap_model(self.model)
        directions = translation_directions(batch.languages, parallel.config.pivot_languages)
        needed = sorted({source for source, _ in directions}) if parallel.decodes else []
        if any(objective.needs_all_embeddings for objective in parallel.objectives.values()):
            needed = list(range(len(batch.languages)))
        encoded = int(batch.lengths[needed].sum())
        decoded = batch.sizes.target_tokens if parallel.decodes else 0
        counts = self.counts
        counts.rows += batch.sizes.rows
        counts.data_wait = self.data_wait
        counts.encoder_tokens += encoded
        counts.decoder_tokens += decoded
        counts.padded_tokens += batch.attention_mask[needed].numel()
        of_texts, of_targets = batch.words
        others = len(batch.languages) - 1
        if parallel.decodes:  # every pivot is the target of all other languages
            counts.words += len(directions) // others * of_texts - of_targets // others + of_targets
        else:
            counts.words += of_texts
        if parallel.config.model_type == "tmde_laser":
            counts.flops += laser_flops(parallel, encoded, decoded)
        else:
            counts.flops += tmde_flops(parallel, encoded, len(needed) * batch.sizes.rows, decoded)


def laser_flops(parallel: ParallelModel, encoder_tokens: int, decoder_tokens: int) -> float:
    """6 operations per token and weight of the LSTMs and of the output; what an embedding is mapped to is left out."""
    lstms = [
        sum(p.numel() for module in part.modules() if isinstance(module, torch.nn.LSTM) for p in module.parameters())
        for part in (parallel.encoder, parallel.model.decoder)
    ]  # fmt: skip
    return 6.0 * (lstms[0] * encoder_tokens + (lstms[1] + parallel.model.lm_head.weight.numel()) * decoder_tokens)


def tmde_flops(parallel: ParallelModel, encoder_tokens: int, texts: int, decoder_tokens: int) -> float:
    """6 operations per token and weight. Where the decoder sees P alone, the last layer has keys and values of all
    tokens and the rest for the first token only."""
    encoder = parallel.encoder
    if isinstance(encoder, BagModel):
        return 6.0 * encoder.config.hidden_size * encoder_tokens
    last = encoder.layers[-1]
    whole = weights(encoder, but=("pyramid_layer",))
    total = 6.0 * whole * encoder_tokens
    if not parallel.sees_states:
        of_first = weights(last) - weights(last.self_attn.k_proj) - weights(last.self_attn.v_proj)
        total -= 6.0 * of_first * (encoder_tokens - texts)
    if parallel.config.bottleneck == "pyramid":
        total += 6.0 * pyramid_weights(encoder, encoder_tokens / texts) * texts
    decoder = parallel.model.decoder
    slot = sum(weights(layer.slot_attn) for layer in decoder.layers if hasattr(layer, "slot_attn"))
    return total + 6.0 * (weights(decoder) - slot + parallel.model.lm_head.weight.numel()) * decoder_tokens


def pyramid_weights(encoder, length: float) -> float:
    """Weights that the pyramid multiplies vectors by, times the vectors, for one text of this length."""
    config = encoder.config
    square, feed_forward = config.d_model**2, 2 * config.d_model * config.encoder_ffn_dim
    queries, total = config.pyramid_queries, 2 * square * length  # keys and values of H^(L-2)
    total += queries * (2 * square + feed_forward)
    for _ in range(2):
        total += 2 * square * queries
        queries //= 2
        total += queries * (2 * square + feed_forward)
    return total + 2 * square * (config.encoder_layers + queries) + 2 * square + feed_forward


def tmde_system(
    recipe: Recipe, size: Size | None, rows: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, steps: int,
    folder: Path, bf16: bool,
) -> System:  # fmt: skip
    """A recipe at this size, or at its own."""
    training = {
        "max_steps": steps, "logging_steps": steps, "eval_strategy": "no", "save_strategy": "no", "batch_tokens": None,
        "load_best_model_at_end": False, "gradient_accumulation_steps": 1, "bf16": bf16, "streaming": None,
        "dataloader_num_workers": None, "max_minutes": None, "eval_on_start": False, "disable_tqdm": True,
        "lr_scheduler_type": "constant",
    }  # fmt: skip
    if size is not None and recipe.architecture == "laser":  # as wide as T-MDE; its layers are in its name
        model = {"d_model": size.d_model, "embedding_dim": size.d_model // 2, "decoder_hidden_size": 2 * size.d_model}
        recipe.sections["model"].update(model, dropout=size.dropout)
    elif size is not None:
        model = {"d_model": size.d_model, "encoder_layers": size.layers, "decoder_layers": size.decoder_layers}
        model |= {"encoder_attention_heads": size.heads, "decoder_attention_heads": size.heads}
        model |= {"encoder_ffn_dim": size.ffn, "decoder_ffn_dim": size.ffn, "dropout": size.dropout}
        recipe.sections["model"].update(model)
    if size is not None:
        training |= {"micro_batch_tokens": size.micro_batch_tokens // 2, "train_max_length": size.max_length}
    training.pop("streaming")
    recipe.sections["training"].update(training)
    special = {"pad_token_id": tokenizer.pad_token_id, "bos_token_id": tokenizer.bos_token_id}
    vocabulary = len(tokenizer) if size is None else max(size.vocab_size, len(tokenizer))
    config = recipe.build_config(vocab_size=vocabulary, eos_token_id=tokenizer.eos_token_id, **special)
    model = ARCHITECTURES[recipe.architecture].model(config)
    arguments = recipe.build_arguments(str(folder))
    parallel = ParallelModel(model, recipe.build_objectives(), arguments.token_dropout, arguments.token_dropout_share)
    trainer = CountingTrainer(parallel, arguments, rows, tokenizer)
    trainer.counts = Counts()
    return System(trainer, trainer.counts, sum(parameter.numel() for parameter in model.parameters()))


# ------------------------------------------------------------------------------------------------------------- peers


class Counted:
    """A trainer that counts the batches it trains on: their collator says what is in them, in whichever process."""

    counts: Counts

    def _prepare_inputs(self, inputs: dict) -> dict:
        self.counts.add(inputs.pop("counts"))
        return super()._prepare_inputs(inputs)


class CountedSeq2SeqTrainer(Counted, Seq2SeqTrainer):
    pass


@dataclass
class MarianCollator:
    """The stock collator, with counts; `encoder`, `decoder`: weights that every token is multiplied by."""

    collate: DataCollatorForSeq2Seq
    encoder: int
    decoder: int

    def __call__(self, features: list[dict]) -> dict:
        words = sum(feature.pop("words") for feature in features)
        read = sum(len(feature["input_ids"]) for feature in features)
        written = sum(len(feature["labels"]) for feature in features)
        batch = self.collate(features)
        flops = 6.0 * (self.encoder * read + self.decoder * written)
        batch["counts"] = Counts(len(features), read, written, batch["input_ids"].numel(), words, flops)
        return batch


def directed_pairs(rows: datasets.Dataset, seed: int = 0) -> list[tuple[str, str]]:
    """Of each row one source and one target text, drawn as T-MDE draws its pairs, shuffled."""
    rng = random.Random(seed)
    pairs = []
    for row in rows["translation"]:
        target = rng.choice(PIVOTS)
        source = rng.choice([language for language in LANGUAGES if language != target])
        pairs.append((row[source], row[target]))
    rng.shuffle(pairs)
    return pairs


def batch_rows(pairs: list[tuple[str, str]], tokenizer: PreTrainedTokenizerBase, size: Size) -> int:
    """Pairs that have as many tokens, on average, as T-MDE's budget of a micro-batch."""
    texts = [text for pair in pairs[:2000] for text in pair]
    lengths = [min(len(ids), size.max_length) for ids in tokenizer(texts)["input_ids"]]
    return max(2, round(size.micro_batch_tokens / (2 * sum(lengths) / len(lengths))))


def peer_arguments(arguments_class: type, folder: Path, steps: int, rows: int, bf16: bool, **more: Any):
    """The stock arguments, with T-MDE's optimizer."""
    return arguments_class(
        output_dir=str(folder), max_steps=steps, per_device_train_batch_size=rows, logging_steps=steps, bf16=bf16,
        save_strategy="no", report_to="none", optim="adamw_torch_fused", lr_scheduler_type="constant",
        learning_rate=5e-4, disable_tqdm=True, max_grad_norm=0.0, adam_beta2=0.98,
        dataloader_num_workers=4 if torch.cuda.is_available() else 0, use_cpu=not torch.cuda.is_available(), **more,
    )  # fmt: skip


def marian_system(
    rows: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, size: Size, steps: int, folder: Path, bf16: bool,
    by_length: bool,
) -> System:  # fmt: skip
    """An encoder-decoder of equal size with full cross-attention; tokenised beforehand, as its examples do."""
    model = MarianMTModel(
        MarianConfig(
            vocab_size=max(size.vocab_size, len(tokenizer)), d_model=size.d_model, encoder_layers=size.layers,
            decoder_layers=size.decoder_layers, encoder_attention_heads=size.heads, activation_function="relu",
            decoder_attention_heads=size.heads, encoder_ffn_dim=size.ffn, decoder_ffn_dim=size.ffn,
            dropout=size.dropout, max_position_embeddings=2048, pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id, decoder_start_token_id=tokenizer.pad_token_id,
            share_encoder_decoder_embeddings=False, tie_word_embeddings=False, scale_embedding=True,
        )
    )  # fmt: skip
    pairs = directed_pairs(rows)
    options = {"truncation": True, "max_length": size.max_length}
    sources, targets = (tokenizer(list(texts), **options)["input_ids"] for texts in zip(*pairs, strict=True))
    words = [len(source.split()) + len(target.split()) for source, target in pairs]
    examples = {"input_ids": sources, "labels": [ids[1:] for ids in targets], "words": words}
    decoder = weights(model.get_decoder()) + model.lm_head.weight.numel()
    collator = MarianCollator(DataCollatorForSeq2Seq(tokenizer, model), weights(model.get_encoder()), decoder)
    more = {"train_sampling_strategy": "group_by_length"} if by_length else {}
    arguments = peer_arguments(
        Seq2SeqTrainingArguments, folder, steps, batch_rows(pairs, tokenizer, size), bf16,
        label_smoothing_factor=0.1, remove_unused_columns=False, **more,
    )  # fmt: skip
    rows = datasets.Dataset.from_dict(examples)
    trainer = CountedSeq2SeqTrainer(model, arguments, collator, rows, processing_class=tokenizer)
    trainer.counts = Counts()
    return System(trainer, trainer.counts, model.num_parameters())


def sentence_transformers_system(
    rows: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, size: Size, steps: int, folder: Path, bf16: bool
) -> System:
    """An encoder of equal size with mean pooling and in-batch negatives."""
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
        losses,
        models,
    )

    config = BertConfig(
        vocab_size=max(size.vocab_size, len(tokenizer)), hidden_size=size.d_model, num_hidden_layers=size.layers,
        num_attention_heads=size.heads, intermediate_size=size.ffn, hidden_act="relu", type_vocab_size=1,
        hidden_dropout_prob=size.dropout, attention_probs_dropout_prob=0.0, max_position_embeddings=512,
    )  # fmt: skip
    body = folder / "bert"
    BertModel(config, add_pooling_layer=False).save_pretrained(body)
    tokenizer.save_pretrained(body)
    transformer = models.Transformer(str(body), max_seq_length=size.max_length)
    model = SentenceTransformer(modules=[transformer, models.Pooling(size.d_model)], device=None)
    pairs = directed_pairs(rows)
    examples = datasets.Dataset.from_dict({"anchor": [a for a, _ in pairs], "positive": [b for _, b in pairs]})
    arguments = peer_arguments(
        SentenceTransformerTrainingArguments, folder, steps, batch_rows(pairs, tokenizer, size), bf16
    )

    class CountedTrainer(Counted, SentenceTransformerTrainer):
        pass

    trainer = CountedTrainer(
        model=model, args=arguments, train_dataset=examples, loss=losses.MultipleNegativesRankingLoss(model)
    )
    trainer.counts = Counts()
    encoder, stock = weights(transformer), type(trainer.data_collator)

    def counting(collator, features: list[dict]) -> dict:
        batch = stock.__call__(collator, features)
        masks = [value for key, value in batch.items() if key.endswith("attention_mask")]
        read, padded = sum(int(mask.sum()) for mask in masks), sum(mask.numel() for mask in masks)
        words = sum(len(feature[column].split()) for feature in features for column in ("anchor", "positive"))
        batch["counts"] = Counts(len(features), read, 0, padded, words, 6.0 * encoder * read)
        return batch

    trainer.data_collator.__class__ = type("CountingCollator", (stock,), {"__call__": counting})
    return System(trainer, trainer.counts, sum(parameter.numel() for parameter in model.parameters()))


def build(name: str, folder: Path, rows: datasets.Dataset, size: Size, steps: int, bf16: bool) -> System:
    """The system of this name: one of `RECIPES` or `PEERS`, or any recipe (a name or a YAML file) at its own size.

    Args:
        folder: With the tokenizer in `tokenizer`; the system may write into it.
        rows: Rows that have every language.
    """
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    torch.manual_seed(0)
    run = folder / "run"
    makers: dict[str, Callable[[], System]] = {
        PEERS[0]: lambda: marian_system(rows, tokenizer, size, steps, run, bf16, by_length=False),
        PEERS[1]: lambda: marian_system(rows, tokenizer, size, steps, run, bf16, by_length=True),
        PEERS[2]: lambda: sentence_transformers_system(rows, tokenizer, size, steps, run, bf16),
    }
    if name in makers:
        return makers[name]()
    recipe, overrides = RECIPES.get(name, (name, []))
    own = size if name in RECIPES else None
    return tmde_system(load_recipe(recipe, overrides), own, rows, tokenizer, steps, run, bf16)
