"""Code of a card: blocks that run as they are printed, in a process of their own; a test does so for every family."""

from __future__ import annotations

import json
import shlex
from typing import NamedTuple

from modeling_tmde.hub_cards.run_facts import RunFacts

# One sentence in languages that models are often trained on.
_SENTENCES = {
    "de": "Der Hafen wird im Frühjahr wieder geöffnet.",
    "en": "The harbour opens again in spring.",
    "es": "El puerto volverá a abrir en primavera.",
    "fr": "Le port rouvrira au printemps.",
    "it": "Il porto riaprirà in primavera.",
    "nl": "De haven gaat in het voorjaar weer open.",
    "pt": "O porto reabre na primavera.",
    "pl": "Port zostanie ponownie otwarty wiosną.",
    "ru": "Порт снова откроется весной.",
    "zh": "港口将于春季重新开放。",
}


class Snippet(NamedTuple):
    """A fenced block: a line above it, its language (`python` or `bash`) and the code."""

    title: str
    language: str
    code: str


def snippets(facts: RunFacts, repo_id: str | None) -> list[Snippet]:
    """What a user of the model can do with it.

    Args:
        repo_id: On the Hub; None for the folder, by its name, as seen from the folder around it.
    """
    where = repo_id or facts.folder.resolve().name
    made = [_embedder(facts, where), _auto_model(facts, where)]
    if facts.opens_in_sentence_transformers or repo_id:  # to which `tmde push` adds what is missing
        made.append(_sentence_transformer(facts, where))
    if facts.decodes_embeddings:
        made.append(_decoder(facts, where))
    return [*made, _command(facts, where)]


def _examples(facts: RunFacts) -> tuple[list[str], list[str]]:
    """Two languages of the model (or twice its only one), and a sentence in each."""
    known = [code for code in ("de", "en") if code in facts.languages]
    known += [code for code in facts.languages if code in _SENTENCES and code not in known]
    codes = [*known, *(code for code in facts.languages if code not in known)]
    codes = (codes * 2)[:2]
    return codes, [_SENTENCES.get(code, _SENTENCES["en"]) for code in codes]


def _quoted(value: str | list[str]) -> str:
    return json.dumps(value, ensure_ascii=False)


def _truncation(facts: RunFacts) -> str:
    return "" if facts.max_length is None else ", truncation=True"


def _embedder(facts: RunFacts, where: str) -> Snippet:
    codes, texts = _examples(facts)
    language = f", language={_quoted(codes)}" if facts.needs_language else ""
    code = f"""
from modeling_tmde import DocumentEmbedder

embedder = DocumentEmbedder.from_pretrained({_quoted(where)})
texts = {_quoted(texts)}
vectors = embedder.encode(texts, normalize=True{language})  # (2, {facts.config.hidden_size}) float32
print(vectors[0] @ vectors[1])  # their cosine
"""
    title = "With `tmde`: one text, one vector, whatever else is in the batch; texts that are cut off are counted:"
    return Snippet(title, "python", code.strip())


def _auto_model(facts: RunFacts, where: str) -> Snippet:
    codes, texts = _examples(facts)
    ids, language = "", ""
    if facts.needs_language:
        ids = f"language_ids = torch.tensor([model.config.languages.index(code) for code in {_quoted(codes)}])\n"
        language = ", language_ids=language_ids"
    code = f"""
import torch
from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({_quoted(where)}, trust_remote_code=True)
model = AutoModel.from_pretrained({_quoted(where)}, trust_remote_code=True).eval()
texts = {_quoted(texts)}
inputs = tokenizer(texts, padding=True{_truncation(facts)}, return_tensors="pt")
{ids}with torch.inference_mode():
    vectors = model(**inputs{language}).pooler_output  # (2, {facts.config.hidden_size})
print(torch.cosine_similarity(vectors[0], vectors[1], dim=0))
"""
    return Snippet("With transformers alone (`trust_remote_code` runs the `.py` files here):", "python", code.strip())


def _sentence_transformer(facts: RunFacts, where: str) -> Snippet:
    codes, texts = _examples(facts)
    if facts.needs_language:
        lines = [
            f"{name} = model.encode({_quoted(text)}, language={_quoted(code)})"
            for name, text, code in zip(("first", "second"), texts, codes, strict=True)
        ]
        encode = "\n".join([*lines, "print(model.similarity(first, second))"])
    else:
        encode = f"vectors = model.encode({_quoted(texts)})\nprint(model.similarity(vectors, vectors))"
    code = f"""
from sentence_transformers import SentenceTransformer

model = SentenceTransformer({_quoted(where)}, trust_remote_code=True)
{encode}
"""
    return Snippet("With sentence-transformers:", "python", code.strip())


def _decoder(facts: RunFacts, where: str) -> Snippet:
    codes, texts = _examples(facts)
    targets = list(facts.config.pivot_languages)
    longest = min(40, (facts.max_length or 41) - 1)
    target = next((code for code in targets if code != codes[0]), targets[0])
    code = f"""
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({_quoted(where)}, trust_remote_code=True)
model = AutoModelForSeq2SeqLM.from_pretrained({_quoted(where)}, trust_remote_code=True).eval()
inputs = tokenizer([{_quoted(texts[0])}]{_truncation(facts)}, return_tensors="pt")
vector = model.get_encoder()(**inputs).pooler_output  # (1, {facts.config.hidden_size})
ids = model.generate(encoder_outputs=vector, target_language={_quoted(target)}, max_new_tokens={longest})
print(tokenizer.batch_decode(ids, skip_special_tokens=True))
"""
    languages = ", ".join(f"`{code}`" for code in targets)
    return Snippet(f"From a vector back to text, in {languages} (see the limits below):", "python", code.strip())


def _command(facts: RunFacts, where: str) -> Snippet:
    codes, texts = _examples(facts)
    language = f" --language {shlex.quote(codes[0])}" if facts.needs_language else ""
    lines = texts[:1] if facts.needs_language else texts
    written = " ".join(shlex.quote(text) for text in lines)
    code = f"""
printf '%s\\n' {written} > texts.txt
tmde embed texts.txt -o vectors.npy --model {shlex.quote(where)}{language}
"""
    return Snippet("On the command line, one text a line:", "bash", code.strip())
