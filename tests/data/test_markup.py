"""Markdown and HTML lose their markup and code, and keep their headings and blocks."""

import gzip
from contextlib import ExitStack

import pytest

from tmde.data import CorpusError
from tmde.data.documents import Documents
from tmde.data.markup import (
    Block,
    html_blocks,
    markdown_blocks,
    read_blocks,
    text_of_blocks,
)

MARKDOWN = """---
title: Front matter
---

# The *first* title { #first }

A [link](http://example.org "x") and an ![image](a.png), `code()` &amp; <b>bold</b>
text.<!-- a comment -->

```python
print("no text")
```

    indented code

- one
- two **three**

| a | b |
|---|---|
| 1 | 2 |

Second
------

!!! note "Title"
    A note.

    ```
    code in a note
    ```

    - with a list

/// tip

A tip.

///

{* ../../docs_src/a.py hl[1] *}

<div class="x"><p>A page</p><script>var x;</script></div>
"""


def test_markdown():
    blocks = markdown_blocks(MARKDOWN)
    assert blocks == [
        Block("The first title", 1),
        Block("A link and an image, code() & bold text."),
        Block("one"),
        Block("two three"),
        Block("a b"),
        Block("1 2"),
        Block("Second", 2),
        Block("A note."),
        Block("with a list"),
        Block("A tip."),
        Block("A page"),
    ]
    assert text_of_blocks(blocks[:2]) == (
        "The first title\n\nA link and an image, code() & bold text."
    )


def test_headings_may_be_marked():
    blocks = markdown_blocks("Before\n\nOne\n===\n\nFirst.\n\n## Two\n")
    assert text_of_blocks(blocks, marks_headings=True) == "Before\n\n# One\n\nFirst.\n\n## Two"


HTML = """<!DOCTYPE html><html><head><title>Site</title><style>p {}</style></head><body>
<header><p>Logo</p></header><nav><ul><li>Menu</li></ul></nav>
<article><header><h1>Ti<em>tle</em><a href="#x">\u00b6</a></h1></header>
<p>One
  two<br>three &eacute;&nbsp;&lt;</p>
<p>Not closed
<pre><code>code()</code></pre>
<table><tr><td>a<td>b<tr><td>c</table>
<h2>Second</h2><div hidden>Hidden</div><aside>A box</aside><script>if (a < b) {}</script>
</article><footer>Imprint</footer></body></html>"""


def test_html():
    blocks = [
        Block("Title", 1),
        Block("One two"),
        Block("three é <"),
        Block("Not closed"),
        Block("a b"),
        Block("c"),
        Block("Second", 2),
        Block("A box"),
    ]
    assert html_blocks(HTML) == blocks
    page = HTML.replace("<article>", "<div>Cookies?</div><main>").replace("</article>", "</main>")
    assert html_blocks(page) == blocks
    assert html_blocks("<form><p>All pages of this server are forms.</p></form>") != []


@pytest.mark.parametrize(
    ("head", "encoding"),
    [
        ("", "utf-8"),
        ("", "utf-8-sig"),
        ("", "utf-16"),
        ('<meta charset="iso-8859-1">', "cp1252"),
        ('<meta http-equiv="Content-Type" content="text/html; charset=windows-1251">', "cp1251"),
        ('<?xml version="1.0" encoding="koi8-r"?>', "koi8-r"),
        ('<meta charset="nonsense">', "utf-8"),
    ],
)
def test_the_encoding_of_a_page(head, encoding, tmp_path):
    word = "Дверь" if encoding in ("cp1251", "koi8-r") else "Tür\u2013"
    path = tmp_path / "a.html.gz"
    path.write_bytes(gzip.compress(f"{head}<p>{word}".encode(encoding)))
    assert read_blocks(str(path)) == [Block(word)]


def test_a_page_in_another_encoding(tmp_path):
    path = tmp_path / "a.html"
    path.write_bytes("<p>a\n<p>Tür".encode("latin-1"))
    with pytest.raises(CorpusError, match=r"a.html, row 2: found the undecodable bytes b'.xfc'"):
        read_blocks(str(path))


def documents_of(source, **options):
    with ExitStack() as stack:
        documents = Documents(stack, str(source), None, None, True, 100, **options)
        return [row for chunk in documents.chunks for row in chunk.rows()]


@pytest.mark.parametrize("name", ["a.md", "a.html", "a.HTM", "a.md.gz"])
def test_a_file_is_one_document(name, tmp_path):
    text = "# Title\n\nText.\n" if ".md" in name else "<h1>Title</h1><p>Text."
    path = tmp_path / "de" / name
    path.parent.mkdir()
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    assert documents_of(path) == [{"id": "a", "text": "Title\n\nText."}]
    expected = {"id": "de/a", "text": "Title\n\nText.", "language": "de"}
    assert documents_of(tmp_path) == [expected]


def test_a_folder_with_code_beside_its_texts(tmp_path):
    (tmp_path / "a.md").write_text("Text.")
    (tmp_path / "a.ts").write_text("const a = 1;")
    assert documents_of(tmp_path) == [{"id": "a", "text": "Text."}]
