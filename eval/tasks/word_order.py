"""The built-in minimal pairs: what a bag of words cannot see, no network and no files."""

from collections.abc import Sequence
from importlib import resources

import yaml

from tmde.data.labeled_tables import choose_languages

from .base import ContrastData, Languages, Provenance, Source, Task, TaskError

CONTROL = "negation"

Item = dict[str, list[str]]  # by language, a sentence and its contrast


class WordOrder(Task):
    """Sentences of the same words with two meanings.

    They differ in who did what to whom, what is negated, which thing is how, and from where to
    where or what came first. In the control group, negation, the contrast also has a negation word.

    A bag of tokens gets exactly 50% except on the control. Character n-grams that hold the full
    stop or comma after a word tell which word is there, so that TF-IDF gets more.
    """

    name = "word_order"
    description = (
        "built-in minimal pairs with the same words, 5 languages: which is the translation? "
        "(no files)"
    )
    provenance = Provenance(
        "minimal pairs written by hand for tmde", "Apache-2.0", source="built-in"
    )
    languages = ("de", "en", "es", "fr", "it")
    default_source = "built-in"

    def load(
        self,
        source: Source = None,
        languages: Languages = None,
        streaming: bool = False,
        phenomena: Sequence[str] | None = None,
    ) -> ContrastData:
        """Load pairs of sentences with ids `"<phenomenon>-<number>"`.

        Args:
            source: None or `"built-in"`.
            languages: None for all five.
            streaming: Ignored.
            phenomena: Some of `roles`, `negation_scope`, `attribute`, `order` and `negation`; the
                mean is over all of them. None for all five, with the mean over the first four, and
                negation measured beside it.

        Raises:
            TaskError: Another source, an unknown language or phenomenon.
        """
        if source not in (None, self.default_source):
            raise TaskError(
                f"{self.name}: found the source {source!r}, expected none: its sentences are built "
                "in."
            )
        chosen = choose_languages(
            self.default_source, languages, WordOrder.languages, self.languages
        )
        pairs = self._read_pairs(phenomena)
        ids = []
        groups = []
        texts: dict[str, list[tuple[str, str]]] = {language: [] for language in chosen}
        for phenomenon, items in pairs.items():
            for number, item in enumerate(items, 1):
                ids.append(f"{phenomenon}-{number:02}")
                groups.append(phenomenon)
                for language in chosen:
                    sentence, contrast = item[language]
                    texts[language].append((sentence, contrast))
        controls = () if phenomena else (CONTROL,)
        return ContrastData(ids, texts, groups, self.provenance, controls)

    def _read_pairs(self, phenomena: Sequence[str] | None) -> dict[str, list[Item]]:
        """Return the items of each phenomenon; None for all phenomena.

        Raises:
            TaskError: A phenomenon is unknown.
        """
        path = resources.files(__package__) / "word_order.yaml"
        pairs = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not phenomena:
            return pairs
        if not set(phenomena) <= set(pairs):
            raise TaskError(
                f"{self.name}: found phenomena={phenomena!r}, expected a list of "
                f"{', '.join(pairs)}. Pass e.g. ['roles']."
            )
        return {name: items for name, items in pairs.items() if name in phenomena}
