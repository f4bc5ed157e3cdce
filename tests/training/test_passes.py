"""What `ParallelModel` hands to every kind of objective, against models called directly on one text at a time."""

import itertools

import pytest
import torch
from torch import nn

from modeling_tmde import (
    AlignedConfig,
    AlignedModel,
    BagConfig,
    BagModel,
    LaserConfig,
    LaserForConditionalGeneration,
    NtdvConfig,
    NtdvForConditionalGeneration,
    TmdeEncoderConfig,
    TmdeEncoderForMaskedLM,
)
from modeling_tmde.training.batching import ParallelBatch
from modeling_tmde.training.objectives import (
    InfoNCE,
    MaskedLanguageModel,
    Objective,
    TranslationLanguageModel,
    TranslationObjective,
    UnifiedGenerativeTask,
)
from modeling_tmde.training.objectives.base import (
    EmbeddingObjective,
    Masked,
    MaskedTextObjective,
    MaskedTokenObjective,
    ObjectiveOutput,
    ParameterObjective,
)
from modeling_tmde.training.parallel_model import ParallelModel
from tests.conftest import tiny_model
from tests.training.test_parallel_model import one_batch, texts_of

LANGUAGES = ["de", "en", "es"]
SHARED = {"vocab_size": 400, "languages": LANGUAGES, "pivot_languages": ["en", "es"]}
MASK = 4


def laser(**changes) -> LaserForConditionalGeneration:
    torch.manual_seed(0)
    sizes = {"d_model": 16, "embedding_dim": 12, "encoder_layers": 1, "decoder_hidden_size": 20, "dropout": 0.0}
    return LaserForConditionalGeneration(LaserConfig(**SHARED | sizes | changes)).eval()


def ntdv(**changes) -> NtdvForConditionalGeneration:
    torch.manual_seed(0)
    sizes = {"d_model": 16, "embedding_dim": 12, "attention_heads": 3}
    return NtdvForConditionalGeneration(NtdvConfig(**SHARED | sizes | changes)).eval()


def encoder(**changes) -> TmdeEncoderForMaskedLM:
    torch.manual_seed(0)
    sizes = {"d_model": 16, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 24}
    sizes |= {"dropout": 0.0, "attention_dropout": 0.0, "max_position_embeddings": 128}
    model = TmdeEncoderForMaskedLM(TmdeEncoderConfig(**SHARED | sizes | changes)).eval()
    with torch.no_grad():
        for parameter in model.head.parameters():  # a head that is seen to do something
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def aligned(**changes) -> AlignedModel:
    torch.manual_seed(0)
    return AlignedModel(AlignedConfig(**SHARED | {"encoder": "bag", "encoder_config": {"d_model": 16}} | changes))


def bag() -> BagModel:
    torch.manual_seed(0)
    return BagModel(BagConfig(**SHARED, d_model=16))


class Spy(Objective):
    """Keeps what it is called with; its loss is a number."""

    def count(self, sizes):
        return 1

    def forward(self, *given):
        self.given = given
        return ObjectiveOutput(torch.zeros(()), {"part": torch.ones(())})


class SpyEmbedding(Spy, EmbeddingObjective):
    pass


class SpyNamedEmbedding(Spy, EmbeddingObjective):
    takes_languages = True


class SpyContext(Spy, EmbeddingObjective):
    takes_context = True


class SpyParameter(Spy, ParameterObjective):
    pass


class SecondHidden:
    """Hides the second token of every text (the first one after `<s>`), so that a reference can do the same."""

    def mask(self, input_ids, attention_mask, config):
        self.asked = input_ids, attention_mask, config
        places = torch.arange(input_ids[..., 0].numel()) * input_ids.shape[-1] + 1
        shown = input_ids.clone()
        shown[..., 1] = config.mask_token_id
        self.made = Masked(shown, places, input_ids[..., 1].flatten())
        return self.made


class SpyToken(SecondHidden, Spy, MaskedTokenObjective):
    pass


class SpyText(SecondHidden, Spy, MaskedTextObjective):
    pass


class SpyPair(SecondHidden, Spy, TranslationLanguageModel):
    def __init__(self):
        TranslationLanguageModel.__init__(self)


def calls_of(module: nn.Module) -> list[dict]:
    """The arguments of every later call by name."""
    calls: list[dict] = []

    def record(_, args, kwargs):
        calls.append(dict(zip(("input_ids", "attention_mask"), args, strict=False)) | kwargs)

    module.register_forward_pre_hook(record, with_kwargs=True)
    return calls


def hidden_second(ids: torch.Tensor) -> torch.Tensor:
    return torch.cat([ids[:1], torch.tensor([MASK]), ids[2:]])


def batch_of(tokenizer, languages: tuple[str, ...], rows: int = 5) -> ParallelBatch:
    return one_batch(tokenizer, languages, languages, rows)


# ---- Losses on embeddings and on weights


@pytest.mark.parametrize("make", [bag, laser, encoder, tiny_model])
def test_embeddings_are_the_pooled_outputs_with_their_languages_if_asked_for(make, tokenizer):
    model, batch = make(), batch_of(tokenizer, ("es", "de", "en"))
    plain, named = SpyEmbedding(), SpyNamedEmbedding()
    outputs = ParallelModel(model, {"plain": plain, "named": named})(**batch.model_inputs())
    whole = getattr(model, "model", model)
    expected = torch.stack([torch.cat([whole(ids[None]).pooler_output for ids in texts]) for texts in texts_of(batch)])
    (embeddings,), (same, languages) = plain.given, named.given
    torch.testing.assert_close(embeddings, expected, atol=1e-5, rtol=1e-5)  # (3, rows, d)
    assert same is embeddings and languages == batch.languages == ("es", "de", "en")
    assert embeddings.requires_grad
    assert outputs["plain"].keys() == {"total", "part"}


@pytest.mark.parametrize("vector", ["sum", "concat"])
def test_who_asks_for_it_gets_the_context(vector, tokenizer):
    """Of NTDV the r context vectors, of which the embedding may be the sum; the encoder is that of each language."""
    model, batch = ntdv(vector=vector), batch_of(tokenizer, ("es", "de"))
    spy, plain = SpyContext(), SpyEmbedding()
    ParallelModel(model, {"spy": spy, "plain": plain})(**batch.model_inputs())
    outputs = [
        [model.model(ids[None], language_ids=torch.tensor([code])) for ids in texts]
        for texts, code in zip(texts_of(batch), (2, 0), strict=True)
    ]
    expected = torch.stack([torch.cat([output.context for output in texts]) for texts in outputs])
    assert expected.shape == (2, 5, 3 * 16)
    torch.testing.assert_close(spy.given[0], expected, atol=1e-5, rtol=1e-5)
    pooled = torch.stack([torch.cat([output.pooler_output for output in texts]) for texts in outputs])
    assert pooled.shape == (2, 5, 16 if vector == "sum" else 3 * 16)
    torch.testing.assert_close(plain.given[0], pooled, atol=1e-5, rtol=1e-5)


def test_without_a_context_the_embeddings_take_its_place(tokenizer):
    spy, plain = SpyContext(), SpyEmbedding()
    batch = batch_of(tokenizer, ("de", "en"))
    ParallelModel(bag(), {"spy": spy, "plain": plain})(**batch.model_inputs())
    assert torch.equal(spy.given[0], plain.given[0])


def test_parameters_are_those_of_the_encoder_that_are_trained(tokenizer):
    model, batch = laser(), batch_of(tokenizer, ("de", "en"))
    spy = SpyParameter()
    parallel = ParallelModel(model, {"spy": spy, "translation": TranslationObjective()})
    parallel(**batch.model_inputs())
    assert [id(item) for item in spy.given[0]] == [id(item) for item in model.model.parameters()]
    model.model.embed_tokens.weight.requires_grad_(False)
    parallel(**batch.model_inputs())
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert {names[id(item)] for item in spy.given[0]} == {
        name for name in names.values() if name.startswith("model.") and "embed_tokens" not in name
    }


def test_weights_alone_need_no_encoder_call(tokenizer):
    model = laser()
    calls = calls_of(model.model)
    ParallelModel(model, {"spy": SpyParameter()})(**batch_of(tokenizer, ("de", "en")).model_inputs())
    assert calls == []


# ---- Hidden tokens


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_a_loss_on_hidden_tokens_sees_the_heads_outputs_there(pooling, tokenizer):
    model, batch = encoder(pooling=pooling), batch_of(tokenizer, ("de", "en", "es"))
    spy, embeddings = SpyToken(), SpyEmbedding()
    calls = calls_of(model.model)
    ParallelModel(model, {"embeddings": embeddings, "spy": spy})(**batch.model_inputs())
    assert len(calls) == 1  # shared, with the same tokens hidden from all
    assert torch.equal(spy.asked[0], batch.input_ids) and torch.equal(spy.asked[1], batch.attention_mask)
    assert spy.asked[2] is model.config
    outputs = [model.model(hidden_second(ids)[None]) for texts in texts_of(batch) for ids in texts]
    expected = model.head(torch.stack([output.token_states[0, 1] for output in outputs]))
    hidden, weight, targets = spy.given
    torch.testing.assert_close(hidden, expected, atol=1e-5, rtol=1e-5)  # (texts, d)
    assert weight is model.lm_head.weight
    assert targets.tolist() == [int(ids[1]) for texts in texts_of(batch) for ids in texts] and MASK not in targets
    pooled = torch.cat([output.pooler_output for output in outputs]).unflatten(0, (3, 5))
    torch.testing.assert_close(embeddings.given[0], pooled, atol=1e-5, rtol=1e-5)


def test_a_loss_on_texts_with_hidden_tokens_sees_the_heads_outputs_for_embeddings(tokenizer):
    model, batch = encoder(), batch_of(tokenizer, ("de", "en"))
    spy = SpyText()
    ParallelModel(model, {"spy": spy})(**batch.model_inputs())
    hidden, weight, masked, input_ids, attention_mask = spy.given
    shown = [[hidden_second(ids)[None] for ids in texts] for texts in texts_of(batch)]
    embeddings = torch.stack([torch.cat([model.model(ids).pooler_output for ids in texts]) for texts in shown])
    torch.testing.assert_close(hidden, model.head(embeddings), atol=1e-5, rtol=1e-5)  # (2, rows, d)
    assert weight is model.lm_head.weight and masked is spy.made
    assert torch.equal(input_ids, batch.input_ids) and torch.equal(attention_mask, batch.attention_mask)


def pair_reference(model: TmdeEncoderForMaskedLM, batch: ParallelBatch, pairs) -> tuple[torch.Tensor, list[int]]:
    """Every text and its translation without the padding between them: the head's outputs at the second token."""
    states, targets = [], []
    for first, second in pairs:
        for ids, others in zip(texts_of(batch)[first], texts_of(batch)[second], strict=True):
            both = torch.cat([hidden_second(ids), others])[None]
            positions = torch.cat([torch.arange(len(ids)), torch.arange(len(others))])[None]
            states.append(model.model(both, position_ids=positions).token_states[0, 1])
            targets.append(int(ids[1]))
    return model.head(torch.stack(states)), targets


@pytest.mark.parametrize(
    ("languages", "pairs"), [(("de", "en"), [(0, 1)]), (("de", "en", "es"), [(0, 1), (1, 2), (2, 0)])]
)
def test_a_loss_on_pairs_reads_texts_with_their_translations(languages, pairs, tokenizer):
    """In a call of its own, and without any other: no embedding is asked for."""
    model, batch = encoder(position_embeddings="learned"), batch_of(tokenizer, languages)
    spy = SpyPair()
    calls = calls_of(model.model)
    ParallelModel(model, {"spy": spy})(**batch.model_inputs())
    assert [tuple(call["input_ids"].shape) for call in calls] == [(len(pairs) * 5, 2 * batch.input_ids.shape[2])]
    expected, targets = pair_reference(model, batch, pairs)
    torch.testing.assert_close(spy.given[0], expected, atol=1e-5, rtol=1e-5)
    assert spy.given[1] is model.lm_head.weight and spy.given[2].tolist() == targets


def test_both_kinds_of_masking_stand_side_by_side(tokenizer):
    """The shared call hides what one asks for, the pairs' call starts from the texts as they were."""
    model, batch = encoder(), batch_of(tokenizer, ("de", "en"))
    single, pair = SpyToken(), SpyPair()
    calls = calls_of(model.model)
    ParallelModel(model, {"pair": pair, "single": single})(**batch.model_inputs())
    assert [len(call["input_ids"]) for call in calls] == [2 * 5, 5]
    assert torch.equal(calls[0]["input_ids"], single.made.input_ids.flatten(0, 1))
    assert torch.equal(pair.asked[0], torch.cat([batch.input_ids[0], batch.input_ids[1]], dim=1))
    expected, _ = pair_reference(model, batch, [(0, 1)])
    torch.testing.assert_close(pair.given[0], expected, atol=1e-5, rtol=1e-5)


def test_only_pairs_are_encoded_by_the_real_objective(tokenizer):
    model, batch = encoder(), batch_of(tokenizer, ("de", "en"))
    calls = calls_of(model.model)
    outputs = ParallelModel(model, {"tlm": TranslationLanguageModel()})(**batch.model_inputs())
    assert [len(call["input_ids"]) for call in calls] == [5]
    outputs["tlm"]["total"].backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


# ---- Translation


def directions(languages: tuple[str, ...], pivots: list[str]) -> list[tuple[int, int]]:
    pairs = itertools.permutations(range(len(languages)), 2)
    return sorted((pair for pair in pairs if languages[pair[1]] in pivots), key=lambda pair: pair[::-1])


def encode(model, ids: torch.Tensor, language: str):
    options = {}
    if getattr(model.model, "needs_language_ids", False):
        options["language_ids"] = torch.tensor([model.config.languages.index(language)])
    return model.model(ids[None], **options)


MAKERS = {
    "laser": laser,
    "ntdv": ntdv,
    "ntdv concat": lambda: ntdv(vector="concat"),
    "nmt": lambda: ntdv(shared_layers=False),
    "tmde": tiny_model,
    "tmde full": lambda: tiny_model(bottleneck="full"),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_the_decoder_gets_the_embedding_and_the_states_it_looks_at(kind, tokenizer):
    """`memory` where the encoder has one, its last states where not, and none for a decoder of the embedding alone."""
    model, batch = MAKERS[kind](), batch_of(tokenizer, ("es", "de", "en"))
    calls = calls_of(model.decoder)
    ParallelModel(model, {"translation": TranslationObjective()})(**batch.model_inputs())
    (call,) = calls
    sees_states = kind not in ("laser", "tmde")
    assert ("encoder_hidden_states" in call) == ("encoder_attention_mask" in call) == sees_states
    texts, pairs = texts_of(batch), directions(batch.languages, ["en", "es"])
    assert pairs == [(1, 0), (2, 0), (0, 2), (1, 2)]  # into Spanish, then into English
    assert len(call["input_ids"]) == len(pairs) * 5
    for place, ((source, target), row) in enumerate(itertools.product(pairs, range(5))):
        ids, written = texts[source][row], texts[target][row]
        encoded = encode(model, ids, batch.languages[source])
        torch.testing.assert_close(call["embedding"][place], encoded.pooler_output[0], atol=1e-5, rtol=1e-5)
        assert call["language_ids"][place] == model.config.languages.index(batch.languages[target])
        # The last token is not read, but where a text is shorter than the longest it is still there.
        length = min(len(written), call["input_ids"].shape[1])
        assert torch.equal(call["input_ids"][place, :length], written[:length])
        assert (call["input_ids"][place, length:] == 1).all()
        if sees_states:
            assert call["encoder_attention_mask"][place].tolist() == batch.attention_mask[source, row].tolist()
            states = encoded.memory if "memory" in encoded else encoded.last_hidden_state
            found = call["encoder_hidden_states"][place, : len(ids)]
            torch.testing.assert_close(found, states[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", MAKERS)
def test_the_translation_loss_is_that_of_every_direction_alone(kind, tokenizer):
    model, batch = MAKERS[kind](), batch_of(tokenizer, ("es", "de", "en"))
    parallel = ParallelModel(model, {"translation": TranslationObjective(label_smoothing=0.0)})
    output = parallel(**batch.model_inputs())["translation"]
    texts, total = texts_of(batch), torch.zeros(())
    for (source, target), row in itertools.product(directions(batch.languages, ["en", "es"]), range(5)):
        labels = texts[target][row]
        encoded = encode(model, texts[source][row], batch.languages[source])
        language = batch.languages[target]
        loss = model(encoder_outputs=encoded, labels=labels[None], target_language=language).loss
        total = total + loss * (len(labels) - 1)
    torch.testing.assert_close(output["total"], total, rtol=1e-5, atol=0)
    torch.testing.assert_close(output["nll"], total.detach(), rtol=1e-5, atol=0)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    wanted = torch.autograd.grad(total, parameters, allow_unused=True)
    gradients = torch.autograd.grad(output["total"], parameters, allow_unused=True)
    assert sum(gradient is not None and bool(gradient.any()) for gradient in wanted) > 0.7 * len(parameters)
    for gradient, expected in zip(gradients, wanted, strict=True):
        assert (gradient is None) == (expected is None)
        if expected is not None:
            torch.testing.assert_close(gradient, expected, rtol=1e-3, atol=1e-4)


# ---- Languages of models that have a part for each


@pytest.mark.parametrize("make", [ntdv, aligned])
def test_language_ids_are_positions_in_the_models_languages(make, tokenizer):
    model, batch = make(), batch_of(tokenizer, ("es", "de", "en"))
    parallel = ParallelModel(model, {"spy": SpyEmbedding()})
    assert parallel.has_parts_by_language
    calls = calls_of(parallel.encoder)
    parallel(**batch.model_inputs())
    assert calls[0]["language_ids"].tolist() == [2] * 5 + [0] * 5 + [1] * 5


def test_language_ids_are_those_of_the_languages_that_are_needed(tokenizer):
    """The one pivot is not encoded, though it stands between the others."""
    model, batch = ntdv(pivot_languages=["de"]), batch_of(tokenizer, ("es", "de", "en"))
    calls = calls_of(model.model)
    ParallelModel(model, {"translation": TranslationObjective()})(**batch.model_inputs())
    assert calls[0]["language_ids"].tolist() == [2] * 5 + [1] * 5
    assert torch.equal(calls[0]["input_ids"], batch.input_ids[[0, 2]].flatten(0, 1))


@pytest.mark.parametrize("make", [laser, encoder, tiny_model, bag])
def test_others_are_not_told_the_language(make, tokenizer):
    parallel = ParallelModel(make(), {"spy": SpyEmbedding()})
    calls = calls_of(parallel.encoder)
    parallel(**batch_of(tokenizer, ("de", "en")).model_inputs())
    assert not parallel.has_parts_by_language and "language_ids" not in calls[0]


# ---- What learns, and what is refused


def test_the_head_learns_only_with_an_objective_that_asks_for_it():
    model = encoder()
    ParallelModel(model, {"infonce": InfoNCE()})
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert frozen == {name for name, _ in model.named_parameters() if name.startswith("head.")}
    for objective in (MaskedLanguageModel(), TranslationLanguageModel(), UnifiedGenerativeTask()):
        model = encoder()
        ParallelModel(model, {"infonce": InfoNCE(), "masking": objective})
        assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("make", [laser, ntdv])
def test_the_decoder_is_frozen_if_nothing_translates(make):
    model = make()
    ParallelModel(model, {"spy": SpyParameter()})
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad == name.startswith("model."), name


@pytest.mark.parametrize(
    ("make", "objectives", "message"),
    [
        (encoder, {"t": TranslationObjective()}, "'t' needs a decoder, and TmdeEncoderForMaskedLM has none"),
        (aligned, {"t": TranslationObjective()}, "'t' needs a decoder, and AlignedModel is an encoder alone"),
        (
            bag,
            {"infonce": InfoNCE(), "mlm": MaskedLanguageModel()},
            "'mlm' needs a language-model head, and BagModel is an encoder alone: .*objectives.mlm=null.*=encoder",
        ),
        (laser, {"tlm": TranslationLanguageModel()}, "'tlm' needs a language-model head, and Laser.* has none"),
        (tiny_model, {"u": UnifiedGenerativeTask()}, "'u' needs a language-model head, and Tmde.* has none"),
        (
            encoder,
            {"mlm": MaskedLanguageModel(), "tlm": TranslationLanguageModel(), "ugt": UnifiedGenerativeTask()},
            "Objectives 'mlm' and 'ugt' would both hide tokens from the same encoder call: remove one",
        ),
    ],
)
def test_objectives_that_do_not_fit_are_refused(make, objectives, message):
    with pytest.raises(ValueError, match=message):
        ParallelModel(make(), objectives)


@pytest.mark.parametrize("kind", [MaskedLanguageModel, UnifiedGenerativeTask, TranslationLanguageModel])
def test_tokens_are_not_dropped_where_some_are_to_be_found(kind):
    with pytest.raises(ValueError, match="token_dropout=0.2 would drop tokens that objective 'masking' is to find"):
        ParallelModel(encoder(), {"infonce": InfoNCE(), "masking": kind()}, token_dropout=0.2)
    ParallelModel(encoder(), {"infonce": InfoNCE(), "masking": kind()}, token_dropout=0.0)
    ParallelModel(encoder(), {"infonce": InfoNCE()}, token_dropout=0.2)
