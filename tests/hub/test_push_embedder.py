"""`DocumentEmbedder.push_to_hub`: what it uploads opens with the same vectors."""

import numpy as np

from tests.tiny_embedders import make_tokenizer, make_xlmr
from tmde import DocumentEmbedder

TEXTS = ["haus hund katze", "house dog"]

PUSH = """
from tmde import DocumentEmbedder
embedder = DocumentEmbedder.from_pretrained(arguments[0], device="cpu")
urls = [embedder.push_to_hub("xlmr")]
try:
    embedder.push_to_hub("xlmr")
except OSError as error:
    urls.append(type(error).__name__)
urls.append(embedder.push_to_hub("user/xlmr", exist_ok=True, revision="dev"))
report(urls)
"""

OPEN = """
from tmde import DocumentEmbedder
opened = DocumentEmbedder.from_pretrained("user/xlmr", device="cpu", revision="dev")
vectors = [opened.encode(arguments).tolist(), opened.encode_query(arguments).tolist()]
report([opened.pooling, opened.prompts, vectors])
"""


def test_a_pushed_embedder_opens_from_the_hub(client, tmp_path):
    embedder = DocumentEmbedder(
        make_xlmr(), make_tokenizer(), "cls", prompt="x: ", prompts={"query": "q: "}
    )
    embedder.save_pretrained(tmp_path / "model")

    first_url, error, second_url = client(PUSH, tmp_path / "model")
    pooling, prompts, vectors = client(OPEN, *TEXTS)

    assert "/user/xlmr/" in first_url
    assert error == "HfHubHTTPError"
    assert second_url == first_url  # Nothing has changed, so there is no further commit.
    assert pooling == "cls"
    assert prompts == {"default": "x: ", "query": "q: ", "document": "x: "}
    expected = [embedder.encode(TEXTS), embedder.encode_query(TEXTS)]
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)
