"""The families of models: what each is, in the words of a card, and where it comes from."""

from __future__ import annotations

from typing import NamedTuple

from modeling_tmde.hub_cards.run_facts import RunFacts

_THESIS = (
    "Wei Li. *Multilingual document embedding with sequential neural network models*. MPhil thesis, "
    "The Hong Kong University of Science and Technology, 2021, {}."
)
_T_MDE, _NTDV = _THESIS.format("chapter 4"), _THESIS.format("chapter 3")
_LASER = (
    "Mikel Artetxe and Holger Schwenk. *Massively multilingual sentence embeddings for zero-shot cross-lingual "
    "transfer and beyond*. TACL 7, 2019."
)
_SIMILARITY = (
    "Katherin Yu, Haoran Li and Barlas Oguz. *Multilingual seq2seq training with similarity loss for cross-lingual "
    "document classification*. RepL4NLP, 2018."
)
_LIGHT = (
    "Zhuoyuan Mao, Prakhar Gupta, Chenhui Chu, Martin Jaggi and Sadao Kurohashi. *Lightweight cross-lingual sentence "
    "representation learning*. ACL, 2021."
)
_XLM = "Guillaume Lample and Alexis Conneau. *Cross-lingual language model pretraining*. NeurIPS, 2019."
_XNLI = "Alexis Conneau et al. *XNLI: evaluating cross-lingual sentence representations*. EMNLP, 2018."
_DISTILLATION = (
    "Nils Reimers and Iryna Gurevych. *Making monolingual sentence embeddings multilingual using knowledge "
    "distillation*. EMNLP, 2020."
)
_INFONCE = (
    "Aaron van den Oord, Yazhe Li and Oriol Vinyals. *Representation learning with contrastive predictive coding*. "
    "2018 (InfoNCE)."
)

# What an objective of a recipe is, and whose it is where that is not said by the family.
OBJECTIVES: dict[str, tuple[str, str | None]] = {
    "translation": ("translation (cross-entropy of the translation's tokens)", None),
    "distance": ("distance constraint (translations together, other sentences a margin further away)", _T_MDE),
    "infonce": ("InfoNCE (find the translation among the other texts of the batch)", _INFONCE),
    "ntdv_distance": ("distance constraint of cNV", _NTDV),
    "similarity": ("similarity loss", _SIMILARITY),
    "weight_regularization": ("weight regularisation", _SIMILARITY),
    "alignment_softmax": ("alignment loss", _LIGHT),
    "similarity_softmax": ("similarity loss over a batch", _LIGHT),
    "unified_generative": ("unified generative task", _LIGHT),
    "masked_lm": ("masked language model", _XLM),
    "translation_lm": ("translation language model", _XLM),
    "distillation": ("distillation (the vectors of a teacher)", _DISTILLATION),
    "xnli_alignment": ("alignment loss of XNLI's baselines", _XNLI),
}


class Family(NamedTuple):
    """`name` in a sentence, `what` it is (one or more sentences), `sources` in Markdown."""

    name: str
    what: str
    sources: tuple[str, ...]


def family_of(facts: RunFacts) -> Family:
    """Of a model of this package; of one whose family has no words here, what its configuration says."""
    make = _MAKERS.get(facts.config.model_type)
    if make is None:
        return Family(f"`{facts.config.model_type}`", f"A model of type `{facts.config.model_type}`.", ())
    family = make(facts)
    others = (OBJECTIVES[name][1] for name in facts.objectives if name in OBJECTIVES)
    return family._replace(sources=tuple(dict.fromkeys([*family.sources, *filter(None, others)])))


def _tmde(facts: RunFacts) -> Family:
    config = facts.config
    names = {"first": "T-MDE", "pyramid": "T-MDE_P", "full": "T-MDE_F", "dual": "dbT-MDE"}
    constrained = "c" if "distance" in facts.objectives else ""
    name = constrained + names[config.bottleneck]
    what = (
        f"A transformer encoder ({_layers(config.encoder_layers)} of width {config.d_model}) whose first output is "
        "the vector of the text."
    )
    if "translation" in facts.objectives:
        what += {
            "full": " It learned with a decoder that translates from all of the encoder's outputs.",
            "dual": " It learned with a decoder that translates from that vector, and from the encoder's other "
            "outputs as well.",
        }.get(config.bottleneck, " It learned with a decoder that translates from that one vector alone.")
    if config.bottleneck == "pyramid":
        what += " The vector is gathered from every layer by a pyramid of learned queries."
    if config.bag_residual:
        what += " The layers add to a weighted bag of the text's tokens, with which the model was begun."
    return Family(name, what, (_T_MDE,))


def _bag(facts: RunFacts) -> Family:
    what = (
        "A bag of subwords: every subword has a vector and a weight, and a text's vector is their weighted sum"
        + (", scaled to length 1." if facts.config.normalize else ", divided by their number.")
        + " There is no transformer, so that it is fast on any machine."
    )
    return Family("bag of subword vectors", what, ())


def _laser(facts: RunFacts) -> Family:
    config = facts.config
    what = (
        f"A BiLSTM encoder ({_layers(config.encoder_layers)}, width {config.d_model}); the vector of a text is the "
        f"{'maximum' if config.pooling == 'max' else 'mean'} of its outputs."
    )
    if "translation" in facts.objectives:
        what += " It learned with an LSTM decoder that translates from that one vector alone."
    if config.pooling == "mean":
        return Family("LSTM seq2seq", what, (_SIMILARITY,))
    return Family("cLASER" if "distance" in facts.objectives else "LASER", what, (_LASER, _T_MDE))


def _ntdv(facts: RunFacts) -> Family:
    config = facts.config
    if not config.shared_layers:
        what = (
            "A GRU encoder for each language, the first stage of NTDV; the vector of a text is the mean of its "
            "outputs."
        )
        return Family("translation model (NMT) of NTDV's first stage", what, (_NTDV,))
    what = (
        f"A GRU encoder for each language, then a GRU and self-attention of {config.attention_heads} heads that all "
        "languages share, whose outputs give the vector of a text."
    )
    return Family("cNV" if "ntdv_distance" in facts.objectives else "NTDV", what, (_NTDV,))


def _encoder(facts: RunFacts) -> Family:
    config = facts.config
    pooling = "the mean of its outputs" if config.pooling == "mean" else "its first output"
    what = (
        f"A transformer encoder without decoder ({_layers(config.encoder_layers)} of width {config.d_model}); the "
        f"vector of a text is {pooling}."
    )
    return Family("transformer encoder", what, ())


def _aligned(facts: RunFacts) -> Family:
    config = facts.config
    kind = "BiLSTM" if config.encoder == "bilstm" else "bag of word vectors"
    what = (
        f"A {kind} for each language; those of the other languages were fitted to the frozen one of "
        f"`{config.source_language}`."
    )
    return Family(f"aligned encoders ({'X-BiLSTM' if config.encoder == 'bilstm' else 'X-CBOW'})", what, (_XNLI,))


def _layers(number: int) -> str:
    return "one layer" if number == 1 else f"{number} layers"


def _adapted(facts: RunFacts) -> Family:
    config = facts.config
    what = (
        f"A pretrained encoder (`{config.encoder_config.model_type}`) whose "
        f"{'first output' if config.pooling == 'cls' else 'mean output'} is the vector of the text."
    )
    if "translation" in facts.objectives:
        what += " It was trained on with a decoder that translates from that one vector alone."
    constrained = "c" if "distance" in facts.objectives else ""
    return Family(f"{constrained}T-MDE on a pretrained encoder", what, (_T_MDE,))


_MAKERS = {
    "tmde": _tmde,
    "tmde_bag": _bag,
    "tmde_laser": _laser,
    "tmde_ntdv": _ntdv,
    "tmde_encoder": _encoder,
    "tmde_aligned": _aligned,
    "tmde_adapted": _adapted,
}
