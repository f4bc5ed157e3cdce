"""The baseline NMT_bs of Li (2021): documents are translated, then compared by their words."""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import os
import time
from collections.abc import Sequence
from functools import cached_property
from importlib import metadata

import numpy as np
import scipy.sparse
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedTokenizerBase

from modeling_tmde import TmdeError
from modeling_tmde.inspection import is_ours, position_limit
from modeling_tmde.seq2seq import EmbeddingSeq2Seq
from tmde.embedding.hub_names import check_model_path
from tmde.embedding.sentences import split_sentences
from tmde.eval.environment import CODE_OF_RESULTS, code_digest
from tmde.eval.model_fingerprint import Role, code_of_vectors, tokenizer_content, weight_bytes
from tmde.eval.systems import Language
from tmde.eval.tasks import TaskError

logger = logging.getLogger(__name__)

BATCH_SENTENCES = 32


class TranslatedTfidf:
    """TF-IDF of words, after a model has translated the texts into one language.

    This is NMT_bs of Li (2021, section 3.4, table 3.2). Texts are translated sentence by sentence
    with greedy search; texts in the target language are not changed. The features are the 50,000
    most frequent words of the translated training texts.

    Args:
        name: The name in tables.
        model: An encoder-decoder of this package.
        tokenizer: The model's tokenizer.
        language: The target language, one of the model's pivot languages. Default: English, or else
            the first pivot language.

    Raises:
        TmdeError: The model does not translate into the language.
    """

    WORDS = 50_000
    dense = False

    def __init__(
        self,
        name: str,
        model: EmbeddingSeq2Seq,
        tokenizer: PreTrainedTokenizerBase,
        language: str | None = None,
    ) -> None:
        pivots = model.config.pivot_languages
        if language is None:
            language = "en" if "en" in pivots else pivots[0]
        if language not in pivots:
            raise TmdeError(
                f"{name}: found the language {language!r} to translate into, expected one of the "
                f"model's pivot languages: {', '.join(pivots)}"
            )
        self.name = name
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.language = language
        # The longest sentence in tokens, `<s>` and `</s>` counted.
        self.max_length = min(position_limit(model), tokenizer.model_max_length)
        self.begin()

    @classmethod
    def from_pretrained(
        cls,
        name: str,
        model: str | os.PathLike[str],
        device: str | torch.device | None = None,
        language: str | None = None,
    ) -> TranslatedTfidf:
        """Load a model and its tokenizer.

        Args:
            name: The name in tables.
            model: A folder or a Hub id.
            device: The device. Default: cuda if available, otherwise cpu.
            language: See the class.

        Raises:
            TmdeError: The model is not an encoder-decoder of this package, or does not translate
                into the language.
            OSError: The model does not exist.
        """
        check_model_path(os.fspath(model))
        loaded, report = AutoModelForSeq2SeqLM.from_pretrained(model, output_loading_info=True)
        if not is_ours(loaded):
            raise TmdeError(
                f"{os.fspath(model)}: found a {loaded.config.model_type}, expected a "
                "translation model trained with tmde"
            )
        if report["missing_keys"]:
            raise TmdeError(
                f"{os.fspath(model)}: found no weights of a decoder "
                f"({len(report['missing_keys'])} are missing), expected a trained translation model"
            )
        if device is None:
            device = "cuda" if torch.cuda.is_available() else "cpu"
        tokenizer = AutoTokenizer.from_pretrained(model)
        return cls(name, loaded.to(device), tokenizer, language)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of weights, configuration, tokenizer and code, computed once per task."""
        digest = hashlib.sha256()
        code = [code_digest(CODE_OF_RESULTS).encode(), *code_of_vectors(type(self.model))]
        for content in itertools.chain(code, weight_bytes(self.model)):
            digest.update(content)
        settings = [
            {**self.model.config.to_dict(), "_name_or_path": None},
            tokenizer_content(self.tokenizer),
            [type(self.model).__name__, self.language, self.max_length],
            ["sentencex", metadata.version("sentencex")],
        ]
        digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
        return digest.hexdigest()[:16]

    def begin(self) -> None:
        """Start a new task, for which the model may have changed: reset all caches."""
        self.__dict__.pop("fingerprint", None)
        self.texts = 0
        self.truncated = 0
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        # By text and its language.
        self._translations: dict[tuple[str, str], str] = {}

    def describe(self) -> dict[str, str | int]:
        """Return how texts become rows."""
        return {
            "translation": f"into {self.language}, by sentences, greedy",
            "max_length": self.max_length,
            "words": self.WORDS,
        }

    def represent(
        self,
        texts: Sequence[str],
        fit_on: Sequence[str],
        language: Language = None,
        role: Role = None,
        fit_language: Language = None,
    ) -> scipy.sparse.csr_matrix:
        """Return the TF-IDF rows of translated texts.

        Args:
            texts: n texts.
            fit_on: The texts that define words and document frequencies.
            language: The language of all texts, or of each text.
            role: Not used.
            fit_language: The language of all of `fit_on`, or of each text.

        Returns:
            A sparse float32 (n, words) matrix with rows of length 1, or 0 if no word is known.

        Raises:
            TaskError: The task is not a classification, so languages are unknown.
            TmdeError: The model does not support a language, or the translations have no words.
        """
        if language is None or fit_language is None:
            raise TaskError(
                f"{self.name} works only for classification: found texts without a language"
            )
        vectorizer = TfidfVectorizer(max_features=self.WORDS, dtype=np.float32)
        translated_fit_on = self._translate(fit_on, fit_language)
        try:
            vectorizer.fit(translated_fit_on)
        except ValueError as error:
            raise TmdeError(
                f"{self.name}: found no word in the translations of {len(fit_on)} texts to "
                f"fit on ({error}). Does the model translate into {self.language}?"
            ) from error
        return vectorizer.transform(self._translate(texts, language))

    def _translate(self, texts: Sequence[str], language: str | Sequence[str]) -> list[str]:
        """Return the texts in the pivot language. Every different text is translated once."""
        codes = [language] * len(texts) if isinstance(language, str) else list(language)
        keys = list(zip(texts, codes, strict=True))
        new_texts: dict[str, list[str]] = {}
        for text, code in dict.fromkeys(keys):
            if (text, code) not in self._translations:
                new_texts.setdefault(code, []).append(text)
        start = time.perf_counter()
        cpu_start = time.process_time()
        for code, texts_of_language in new_texts.items():
            self._translate_language(texts_of_language, code)
            self.texts += len(texts_of_language)
        self.seconds += time.perf_counter() - start
        self.cpu_seconds += time.process_time() - cpu_start
        return [self._translations[key] for key in keys]

    def _translate_language(self, texts: list[str], code: str) -> None:
        """Store the translations of texts of one language."""
        if code == self.language:
            for text in texts:
                self._translations[text, code] = text
            return
        known = self.model.config.languages
        if code not in known:
            raise TmdeError(
                f"{self.name}: found texts in {code!r}, expected the languages of the model: "
                f"{', '.join(known)}"
            )
        documents = [split_sentences(text, code) for text in texts]
        sentences = list(dict.fromkeys(itertools.chain.from_iterable(documents)))
        translations = dict(zip(sentences, self._translate_sentences(sentences, code), strict=True))
        for text, document in zip(texts, documents, strict=True):
            translated = [translations[sentence] for sentence in document]
            self._translations[text, code] = " ".join(translated)

    def _translate_sentences(self, sentences: list[str], code: str) -> list[str]:
        """Return the translations of sentences of one language, in their order."""
        if not sentences:
            return []
        token_ids = self.tokenizer(sentences, truncation=False)["input_ids"]
        lengths = np.array([len(ids) for ids in token_ids])
        num_truncated = int((lengths > self.max_length).sum())
        if num_truncated:
            self.truncated += num_truncated
            logger.warning(
                "%s: %d sentences of more than %d tokens are truncated before translation",
                self.name,
                num_truncated,
                self.max_length,
            )
        translations = [""] * len(sentences)
        order = np.argsort(lengths, kind="stable")
        for start in range(0, len(order), BATCH_SENTENCES):
            numbers = order[start : start + BATCH_SENTENCES]
            batch = [sentences[number] for number in numbers]
            for number, translation in zip(numbers, self._generate(batch, code), strict=True):
                translations[number] = translation
        return translations

    @torch.inference_mode()
    def _generate(self, sentences: list[str], code: str) -> list[str]:
        """Return the translations of a batch."""
        inputs = self.tokenizer(
            sentences,
            padding=True,
            truncation=True,
            max_length=self.max_length,
            return_tensors="pt",
        ).to(self.model.device)
        optional_inputs = {}
        if self.model.base_model.needs_language_ids:
            optional_inputs["language_ids"] = self.model.language_ids(code, len(sentences))
        # A translation is rarely twice as long as its source; a bad one may never end.
        limits = []
        for length in inputs["attention_mask"].sum(dim=1).tolist():
            limits.append(min(2 * length + 10, self.max_length - 1))
        written = self.model.generate(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            target_language=self.language,
            max_new_tokens=max(limits),
            do_sample=False,
            num_beams=1,
            **optional_inputs,
        )  # (batch, at most 1 + max(limits)), beginning with `<s>`
        # A sentence has the same translation whatever the lengths of others in its batch.
        cut_ids = [row[: 1 + limit] for row, limit in zip(written, limits, strict=True)]
        return self.tokenizer.batch_decode(cut_ids, skip_special_tokens=True)
