"""The built-in minimal pairs: what a bag of words cannot see, no network and no files."""

from collections.abc import Sequence
from importlib import resources

import yaml

from .base import ContrastData, Languages, Provenance, Task, TaskError
from .sources import choose_languages

CONTROL = "negation"


class WordOrder(Task):
    """Sentences of the same words with two meanings: who did what to whom, what is negated, which thing is how, and
    from where to where or what came first. The contrast of the control, negation, has its words of negation besides.

    A bag of tokens gets exactly 50 % but for the control. Character n-grams that hold the full stop or comma after a
    word tell which word is there, so that TF-IDF gets more.
    """

    name = "word_order"
    description = "built-in minimal pairs of the same words, 5 languages: which is the translation? (no files)"
    provenance = Provenance(
        "minimal pairs written by hand for tmde", "Apache-2.0", source="built-in"
    )
    languages = ("de", "en", "es", "fr", "it")
    default_source = "built-in"

    def load(
        self,
        source: str | None = None,
        languages: Languages = None,
        streaming: bool = False,
        phenomena: Sequence[str] | None = None,
    ) -> ContrastData:
        """Pairs of sentences with ids `"<phenomenon>-<number>"`. `streaming` is ignored.

        Args:
            source: None or `"built-in"`.
            phenomena: Of `roles`, `negation_scope`, `attribute`, `order`, `negation`; the mean is over all of them.
                None: all, the mean being over the first four, and negation measured beside it.

        Raises:
            TaskError: Another source, an unknown language or phenomenon.
        """
        if source not in (None, self.default_source):
            raise TaskError(
                f"{self.name}: found the source {source!r}, expected none: its sentences are built in."
            )
        chosen = choose_languages(
            self.default_source, languages, WordOrder.languages, self.languages
        )
        path = (
            resources.files(__package__) / "word_order.yaml"
        )  # by phenomenon: {language: [sentence, contrast]}
        pairs = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not set(phenomena or ()) <= set(pairs):
            found = f"{self.name}: found phenomena={phenomena!r}"
            raise TaskError(f"{found}, expected a list of {', '.join(pairs)}. Pass e.g. ['roles'].")
        items = {
            (phenomenon, number): item
            for phenomenon in pairs
            if phenomenon in (phenomena or pairs)
            for number, item in enumerate(pairs[phenomenon], 1)
        }
        return ContrastData(
            ids=[f"{phenomenon}-{number:02}" for phenomenon, number in items],
            texts={code: [tuple(item[code]) for item in items.values()] for code in chosen},
            groups=[phenomenon for phenomenon, _ in items],
            provenance=self.provenance,
            controls=() if phenomena else (CONTROL,),
        )
