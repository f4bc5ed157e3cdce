"""The built-in minimal pairs: what a bag of words cannot see, no network and no files."""

from collections.abc import Sequence
from importlib import resources

import yaml

from .base import ContrastData, Provenance, Task, TaskError
from .sources import choose_languages

LANGUAGES = ("de", "en", "es", "fr", "it")
PHENOMENA = ("roles", "negation_scope", "attribute", "order")
CONTROL = "negation"


class WordOrder(Task):
    """Sentences of the same words with two meanings: who did what to whom, what is negated, which thing is how, and
    from where to where or what came first. The contrast of the control, negation, has its words of negation besides.

    A bag of tokens gets exactly 50 % but for the control. Character n-grams that hold the full stop or comma after a
    word tell which word is there, so that TF-IDF gets more.
    """

    name = "word_order"
    description = "built-in minimal pairs of the same words, 5 languages: which is the translation? (no files)"
    languages = LANGUAGES
    default_source = "built-in"

    def load(
        self,
        source: str | None = None,
        languages: Sequence[str] | None = None,
        streaming: bool = False,
        phenomena: Sequence[str] | None = None,
    ) -> ContrastData:
        """Pairs of sentences with ids `"<phenomenon>-<number>"`. `streaming` means nothing here.

        Args:
            source: None or `"built-in"`.
            phenomena: Of `roles`, `negation_scope`, `attribute`, `order`, `negation`; the mean is over all of them.
                None: all, the mean being over the first four, and negation measured beside it.

        Raises:
            CorpusError: Another source, an unknown language or phenomenon.
        """
        if source not in (None, self.default_source):
            found = f"{self.name}: found the source {source!r}"
            raise TaskError(f"{found}, expected none, since its sentences are built in. Leave it out.")
        chosen = choose_languages(self.default_source, languages, LANGUAGES, self.languages)
        known = (*PHENOMENA, CONTROL)
        stated = isinstance(phenomena, list | tuple) and phenomena and all(each in known for each in phenomena)
        if phenomena is not None and not stated:
            found = f"{self.name}: found phenomena={phenomena!r}"
            raise TaskError(f"{found}, expected a list of {', '.join(known)}. Pass e.g. ['roles'].")
        items = {
            (phenomenon, number): item
            for phenomenon, rows in _read().items()
            if phenomenon in (phenomena or known)
            for number, item in enumerate(rows, 1)
        }
        return ContrastData(
            ids=[f"{phenomenon}-{number:02}" for phenomenon, number in items],
            texts={code: [tuple(item[code]) for item in items.values()] for code in chosen},
            groups=[phenomenon for phenomenon, _ in items],
            provenance=Provenance("minimal pairs written by hand for tmde", "Apache-2.0", source=self.default_source),
            controls=() if stated else (CONTROL,),
        )


def _read() -> dict[str, list[dict[str, list[str]]]]:
    """By phenomenon its items: by language, a sentence and its contrast."""
    path = resources.files(__package__) / "word_order.yaml"
    return yaml.safe_load(path.read_text(encoding="utf-8"))
