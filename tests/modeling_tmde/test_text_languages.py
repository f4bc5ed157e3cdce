"""A model with a part for each language: every text goes through its own, whatever batch, order or window it is in."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling

from modeling_tmde import BagConfig, BagModel
from modeling_tmde.embedding import DocumentEmbedder
from tests.modeling_tmde.test_embedding import make_tokenizer, make_xlmr

LANGUAGES = ["de", "en", "fr"]


class TablesConfig(PreTrainedConfig):
    model_type = "tmde_tables"

    def __init__(self, vocab_size=400, width=6, languages=LANGUAGES, **kwargs):
        super().__init__(**kwargs)
        self.vocab_size, self.hidden_size, self.languages = vocab_size, width, list(languages)


class TablesModel(PreTrainedModel):
    """A table of word vectors for each language; a text is the mean of its own language's."""

    config_class = TablesConfig
    needs_language_ids = True

    def __init__(self, config: TablesConfig):
        super().__init__(config)
        self.tables = nn.ModuleList(nn.Embedding(config.vocab_size, config.hidden_size) for _ in config.languages)
        self.post_init()

    def _init_weights(self, module):
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight)

    def forward(self, input_ids, attention_mask, language_ids):
        assert language_ids.shape == (len(input_ids),) and language_ids.device == input_ids.device
        tables = torch.stack([table.weight for table in self.tables])  # (languages, vocab_size, width)
        vectors = tables[language_ids[:, None], input_ids] * attention_mask[..., None]  # (batch, length, width)
        pooled = vectors.sum(1) / attention_mask.sum(1, keepdim=True)
        return BaseModelOutputWithPooling(last_hidden_state=pooled[:, None], pooler_output=pooled)


def make_tables() -> TablesModel:
    torch.manual_seed(0)
    return TablesModel(TablesConfig()).eval()


@pytest.fixture(scope="module")
def embedder():
    return DocumentEmbedder(make_tables(), make_tokenizer())


def by_hand(embedder, text, code):
    """The mean of the language's vectors, in float64."""
    table = embedder.model.tables[LANGUAGES.index(code)].weight.detach().double().numpy()
    return np.mean([table[token] for token in embedder.tokenizer(text)["input_ids"]], axis=0)


TOLD = st.lists(st.tuples(st.text(max_size=30), st.sampled_from(LANGUAGES)), min_size=1, max_size=12)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(told=TOLD, batch_tokens=st.integers(1, 200), chunk=st.integers(1, 5), tensor=st.booleans())
def test_each_text_goes_through_its_own_language(embedder, told, batch_tokens, chunk, tensor):
    texts, codes = map(list, zip(*told, strict=True))
    expected = np.stack([by_hand(embedder, *pair) for pair in told])
    options = {"batch_tokens": batch_tokens, "convert_to_tensor": tensor}
    together = np.asarray(embedder.encode(texts, language=codes, **options))
    np.testing.assert_allclose(together, expected, rtol=0, atol=1e-5)
    for code in set(codes):  # as if each language came alone
        rows = [row for row, found in enumerate(codes) if found == code]
        alone = embedder.encode([texts[row] for row in rows], language=code)
        np.testing.assert_allclose(together[rows], alone, rtol=0, atol=1e-5)
    stream = embedder.encode_iter(iter(texts), chunk, language=iter(codes), **options)
    np.testing.assert_allclose(np.concatenate([np.asarray(part) for part in stream]), expected, rtol=0, atol=1e-5)


def test_what_is_wrong_with_languages_is_said(embedder):
    with pytest.raises(ValueError, match="found None, but TablesModel has an encoder for each language; give languag"):
        embedder.encode(["a"])
    with pytest.raises(ValueError, match=r"language of text 0: found 'xx', expected one of \['de', 'en', 'fr'\]"):
        embedder.encode(["a", "b"], language="xx")
    for codes, found in ((["de"], 1), (["de"] * 3, 3), ([], 0)):
        with pytest.raises(ValueError, match=f"language: found {found} codes for 2 texts"):
            embedder.encode(["a", "b"], language=codes)


def test_a_stream_of_codes_must_end_with_the_texts(embedder):
    few = embedder.encode_iter(["a", "b", "c"], 2, language=iter(["de", "en"]))
    assert next(few).shape == (2, 6)
    with pytest.raises(ValueError, match="language: found 2 codes for 3 texts"):
        next(few)
    with pytest.raises(ValueError, match="language: found more codes than the 2 texts"):
        list(embedder.encode_iter(["a", "b"], 2, language=["de"] * 4))
    with pytest.raises(ValueError, match="language of text 2: found 'xx'"):
        list(embedder.encode_iter(["a", "b", "c"], 2, language=["de", "de", "xx"]))


@pytest.mark.parametrize("model", [make_xlmr(), BagModel(BagConfig(vocab_size=400, d_model=8)).eval()])
def test_a_model_without_language_parts_ignores_the_language(model):
    plain = DocumentEmbedder(model, make_tokenizer())
    assert not plain.needs_language
    expected = plain.encode(["a", "open"])
    for language in ("de", "no code", ["de"], []):
        np.testing.assert_array_equal(plain.encode(["a", "open"], language=language), expected)
    (part,) = plain.encode_iter(["a", "open"], language=iter(()))
    np.testing.assert_array_equal(part, expected)
