"""The passages that `tmde demo` shows without documents, and questions that they answer."""

from pathlib import Path

FOLDER = Path(__file__).with_name("demo_passages")
# 60 passages of FLORES-200, each in five languages. They belong to a benchmark, so nothing may be
# trained, chosen or reported on them.
PASSAGES = FOLDER / "passages.jsonl"
NAME = "FLORES-200"

# The language and the text of each.
QUESTIONS = (
    ("de", "Dürfen Drohnen am Flughafen fliegen?"),
    ("en", "Which wild animals can one see in Kenya?"),
    ("es", "¿Qué río lleva más agua?"),
    ("fr", "Où skier en hiver ?"),
    ("it", "Quali animali attirano i cibi in campeggio?"),
)
