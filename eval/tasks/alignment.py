"""Alignment of documents, as paper 003 measures it: web pages of WMT16, and the news commentaries of WMT19."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

from tmde.data.checks import Words, bad_value
from tmde.data.files import read_lines

from .base import AlignmentData, DocumentCollection, Languages, Provenance, Source, Task
from .sources import choose_languages, pair_of, provenance_of, source_of

Documents = dict[str, str]  # text by id


class WMT16(Task):
    """Bilingual document alignment of WMT16: English and French pages, aligned within websites (003, section 6)."""

    name = "wmt16"
    description = "alignment of English and French web pages within 203 sites (needs a source)"
    provenance = Provenance(
        citation="Buck and Koehn, Findings of the WMT 2016 Bilingual Document Alignment Shared Task, 2016",
        licence="those of the crawled pages",
        url="https://www.statmt.org/wmt16/bilingual-task.html",
    )
    languages = ("en", "fr")

    def load(
        self,
        source: Source = None,
        languages: Languages = None,
        streaming: bool = False,
        split: str = "test",
        by_url: bool = False,
        lawdr_rank: int | None = None,
    ) -> AlignmentData:
        """The pages of every website that have a text, and the pairs of URLs to be found.

        Args:
            source: The folder that holds `test.pairs` (URL of an English page, tab, URL of a French one), and
                `lett.test` or any folders with one `.lett` or `.lett.gz` file a website. A line of these is language,
                MIME type, encoding, URL, HTML and text, the last two in Base64, with tabs between.
            languages, streaming: Without influence.
            split: `test` or `train`.
            by_url, lawdr_rank: See [`AlignmentData`].

        Raises:
            CorpusError: No source, a missing file, a line that is not as published, or a pair of unknown URLs.
        """
        advice = f"Pass the folder of the shared task's files: {split}.pairs, and lett.{split} with *.lett.gz."
        folder = Path(source_of(self, source, advice))
        pairs_file = next(iter(sorted(folder.rglob(f"{split}.pairs"))), None)
        named = any(folder.rglob("lett.*"))  # folders of the published splits
        files = sorted(folder.rglob(f"lett.{split}/*.lett*" if named else "*.lett*"))
        if pairs_file is None or not files:
            missing = f"{split}.pairs" if pairs_file is None else "*.lett.gz"
            raise bad_value(str(folder), None, None, Words("no file"), missing, advice)
        sites: dict[str, tuple[Documents, Documents]] = {}  # by the name of the file
        site_of: dict[str, str] = {}  # by URL, of pages without text, too
        for path in files:
            site = sites[path.name.partition(".lett")[0]] = ({}, {})
            for language, url, text in _read_lett(str(path)):
                if language in WMT16.languages and url not in site_of:
                    site_of[url] = path.name.partition(".lett")[0]
                    if text.strip():
                        site[WMT16.languages.index(language)][url] = text
        pairs: dict[str, list[tuple[str, str]]] = {}
        for number, line in read_lines(str(pairs_file)):
            urls = line.split("\t")
            if len(urls) != 2 or urls[0] not in site_of or site_of.get(urls[1]) != site_of[urls[0]]:
                raise bad_value(
                    str(pairs_file),
                    number,
                    None,
                    line,
                    "two URLs of one .lett file, tab between",
                    advice,
                )
            pairs.setdefault(site_of[urls[0]], []).append(tuple(urls))
        collections = {
            name: DocumentCollection(WMT16.languages, sites[name], pairs[name])
            for name in sites
            if name in pairs
        }
        provenance = provenance_of(self, str(folder), split, copy=True)
        return AlignmentData(collections, provenance, by_url, lawdr_rank)


class WMT19(Task):
    """Alignment of the news commentaries of WMT19, in each pair of fifteen languages (003, section 6)."""

    name = "wmt19"
    description = "alignment of news commentaries, 99 pairs of 15 languages (needs a source)"
    provenance = Provenance(
        citation="Barrault et al., Findings of the 2019 Conference on Machine Translation, 2019",
        licence="as given by the publisher",
        url="https://data.statmt.org/news-commentary/v14/",
    )
    languages = tuple("ar cs de en es fr hi id it ja kk nl pt ru zh".split())

    def load(
        self,
        source: Source = None,
        languages: Languages = None,
        streaming: bool = False,
        lawdr_rank: int | None = None,
    ) -> AlignmentData:
        """The documents of every pair of the languages, those of one number being translations.

        Args:
            source: The folder with files such as `news-commentary-v14.de-en.tsv.gz`: two sentences a line with a tab
                between, and a line without text between two documents.
            streaming: Without influence.
            lawdr_rank: See [`AlignmentData`].

        Raises:
            CorpusError: No source or files, missing languages, or a line without a tab.
        """
        advice = "Pass the folder with the files news-commentary-v14.de-en.tsv.gz ... of data.statmt.org."
        source = source_of(self, source, advice)
        files = {}
        for path in sorted(Path(source).rglob("news-commentary-*.tsv*")):
            if pair := pair_of(
                path.name.removesuffix(".gz").removesuffix(".tsv").rpartition(".")[2]
            ):
                files[pair] = str(path)
        chosen = choose_languages(
            source, languages, sorted({code for pair in files for code in pair}), self.languages
        )
        collections = {}
        for pair, path in files.items():
            if set(pair) <= set(chosen):
                sides = _read_commentaries(path, advice)
                collections["-".join(pair)] = DocumentCollection(
                    pair, sides, [(name, name) for name in sides[0]]
                )
        if not collections:
            expected = f"both languages of one file: {', '.join(map('-'.join, files))}"
            raise bad_value(source, None, "languages", chosen, expected, "Pass languages=[...].")
        return AlignmentData(
            collections, provenance_of(self, source, None, copy=True), lawdr_rank=lawdr_rank
        )


def _read_lett(path: str) -> Iterator[tuple[str, str, str]]:
    """Language, URL and text of each page."""
    for number, line in read_lines(path):
        try:
            language, _, _, url, _, text = line.split("\t")
            yield language, url, base64.b64decode(text, validate=True).decode()
        except ValueError as error:  # binascii's and of Unicode among them
            expected = "six fields with tabs between, the last a text in Base64"
            raise bad_value(
                path, number, None, Words(f"{error}"), expected, "Fetch the file again."
            ) from error


def _read_commentaries(path: str, advice: str) -> tuple[Documents, Documents]:
    """The documents of a file that have both sides, by their number."""
    documents: list[list[tuple[str, str]]] = [[]]
    for number, line in read_lines(path):
        if line.strip() and "\t" not in line:
            raise bad_value(path, number, None, line, "two sentences with a tab between", advice)
        if line.strip():
            documents[-1].append(line.partition("\t")[::2])
        elif documents[-1]:
            documents.append([])
    sides: tuple[Documents, Documents] = ({}, {})
    for number, rows in enumerate(documents):
        texts = ["\n".join(row[side] for row in rows if row[side].strip()) for side in (0, 1)]
        for side, text in zip(sides, texts, strict=True):
            if all(texts):
                side[str(number)] = text
    return sides
