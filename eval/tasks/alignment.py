"""Alignment of documents (Gong et al., 2021): web pages of WMT16, news commentaries of WMT19."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tmde.data.checks import Unquoted, bad_value
from tmde.data.labeled_tables import choose_languages
from tmde.data.lines import read_lines
from tmde.data.parts import pair_of

from .base import (
    AlignmentData,
    DocumentCollection,
    Languages,
    LawdrRank,
    Provenance,
    Source,
    Task,
)
from .sources import lawdr_settings, provenance_of, source_of

Documents = dict[str, str]  # text by id
LanguagePair = tuple[str, str]


class WMT16(Task):
    """Bilingual document alignment of WMT16 (Gong et al., 2021, section 6).

    English and French pages are aligned within websites.
    """

    name = "wmt16"
    description = "alignment of English and French web pages within 203 sites (needs a source)"
    provenance = Provenance(
        citation="Buck and Koehn, Findings of the WMT 2016 Bilingual Document Alignment Shared "
        "Task, 2016",
        license="those of the crawled pages",
        url="https://www.statmt.org/wmt16/bilingual-task.html",
    )
    languages = ("en", "fr")
    needs = "a folder with test.pairs and *.lett.gz"

    def load(
        self,
        source: Source = None,
        languages: Languages = None,
        streaming: bool = False,
        split: str = "test",
        by_url: bool = False,
        lawdr_rank: LawdrRank = None,
        lawdr_weighted: bool = True,
    ) -> AlignmentData:
        """Load the pages of every website that have a text, and the pairs of URLs to be found.

        Args:
            source: The folder that holds `test.pairs` (URL of an English page, tab, URL of a French
                one), and `lett.test` or any folders with one `.lett` or `.lett.gz` file a website.
                A line of these is language, MIME type, encoding, URL, HTML and text, the last two
                in Base64, with tabs between.
            languages: Ignored.
            streaming: Ignored.
            split: `test` or `train`.
            by_url: See [`AlignmentData`].
            lawdr_rank: See [`LawdrSettings`]; None if LAWDR is not used.
            lawdr_weighted: See [`LawdrSettings`].

        Raises:
            CorpusError: No source, a missing file, a line that is not as published, a pair of
                unknown URLs, or bad settings of LAWDR.
        """
        lawdr = lawdr_settings(self, lawdr_rank, lawdr_weighted)
        advice = (
            f"Pass the folder of the shared task's files: {split}.pairs, and lett.{split} with "
            "*.lett.gz."
        )
        folder = Path(source_of(self, source, advice))
        pairs_file, lett_files = _find_wmt16_files(folder, split, advice)
        sites, site_of = _read_sites(lett_files)
        pairs = _read_url_pairs(pairs_file, site_of, advice)
        collections = {}
        for name, documents in sites.items():
            if name in pairs:
                collections[name] = DocumentCollection(WMT16.languages, documents, pairs[name])
        provenance = provenance_of(self, str(folder), split, copy=True)
        return AlignmentData(collections, provenance, by_url, lawdr)


def _find_wmt16_files(folder: Path, split: str, advice: str) -> tuple[Path, list[Path]]:
    """Return the file of pairs and the files of websites.

    Raises:
        CorpusError: One of them is missing.
    """
    pairs_files = sorted(folder.rglob(f"{split}.pairs"))
    if not pairs_files:
        raise bad_value(str(folder), None, None, Unquoted("no file"), f"{split}.pairs", advice)
    pattern = "*.lett*"
    has_folders_of_splits = any(folder.rglob("lett.*"))
    if has_folders_of_splits:
        pattern = f"lett.{split}/*.lett*"
    lett_files = sorted(folder.rglob(pattern))
    if not lett_files:
        raise bad_value(str(folder), None, None, Unquoted("no file"), "*.lett.gz", advice)
    return pairs_files[0], lett_files


def _read_sites(
    lett_files: list[Path],
) -> tuple[dict[str, tuple[Documents, Documents]], dict[str, str]]:
    """Return the English and the French texts of each website, and the website of each URL.

    The websites of pages without text are returned, too.
    """
    sites: dict[str, tuple[Documents, Documents]] = {}
    site_of: dict[str, str] = {}
    for path in lett_files:
        site = path.name.partition(".lett")[0]
        sites[site] = ({}, {})
        for page in _read_pages(str(path)):
            if page.language not in WMT16.languages or page.url in site_of:
                continue
            site_of[page.url] = site
            if page.text.strip():
                side = WMT16.languages.index(page.language)
                sites[site][side][page.url] = page.text
    return sites, site_of


class _Page(NamedTuple):
    """A page of a website."""

    language: str
    url: str
    text: str


def _read_pages(path: str) -> Iterator[_Page]:
    """Yield the pages of a `.lett` file.

    Raises:
        CorpusError: A line is not as published.
    """
    for number, line in read_lines(path):
        # The errors of Base64 and of UTF-8 are ValueErrors, too.
        try:
            language, _, _, url, _, encoded_text = line.split("\t")
            text = base64.b64decode(encoded_text, validate=True).decode()
        except ValueError as error:
            expected = "six fields with tabs between, the last a text in Base64"
            advice = "Fetch the file again."
            raise bad_value(path, number, None, Unquoted(str(error)), expected, advice) from error
        yield _Page(language, url, text)


def _read_url_pairs(
    path: Path, site_of: Mapping[str, str], advice: str
) -> dict[str, list[tuple[str, str]]]:
    """Return the pairs of URLs to be found, by website.

    Raises:
        CorpusError: A line is not two URLs of one website.
    """
    pairs: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for number, line in read_lines(str(path)):
        urls = line.split("\t")
        sites = {site_of.get(url) for url in urls}
        if len(urls) != 2 or len(sites) != 1 or None in sites:
            expected = "two URLs of one .lett file, tab between"
            raise bad_value(str(path), number, None, line, expected, advice)
        first_url, second_url = urls
        pairs[site_of[first_url]].append((first_url, second_url))
    return dict(pairs)


class WMT19(Task):
    """Alignment of WMT19's news commentaries, in pairs of fifteen languages (Gong et al., 2021)."""

    name = "wmt19"
    description = "alignment of news commentaries, 99 pairs of 15 languages (needs a source)"
    provenance = Provenance(
        citation="Barrault et al., Findings of the 2019 Conference on Machine Translation, 2019",
        license="as given by the publisher",
        url="https://data.statmt.org/news-commentary/v14/",
    )
    languages = (
        "ar",
        "cs",
        "de",
        "en",
        "es",
        "fr",
        "hi",
        "id",
        "it",
        "ja",
        "kk",
        "nl",
        "pt",
        "ru",
        "zh",
    )
    needs = "a folder with news-commentary-v14.de-en.tsv.gz and others"

    def load(
        self,
        source: Source = None,
        languages: Languages = None,
        streaming: bool = False,
        lawdr_rank: LawdrRank = None,
        lawdr_weighted: bool = True,
    ) -> AlignmentData:
        """Load the documents of every pair of the languages.

        Documents of one number are translations.

        Args:
            source: The folder with files such as `news-commentary-v14.de-en.tsv.gz`: two sentences
                a line with a tab between, and a line without text between two documents.
            languages: None for those of the task that the folder has.
            streaming: Ignored.
            lawdr_rank: See [`LawdrSettings`]; None if LAWDR is not used.
            lawdr_weighted: See [`LawdrSettings`].

        Raises:
            CorpusError: No source or files, missing languages, a line without a tab, or bad
                settings of LAWDR.
        """
        lawdr = lawdr_settings(self, lawdr_rank, lawdr_weighted)
        advice = (
            "Pass the folder with the files news-commentary-v14.de-en.tsv.gz ... of "
            "data.statmt.org."
        )
        source = source_of(self, source, advice)
        files = _find_commentaries(source)
        available: set[str] = set()
        for pair in files:
            available.update(pair)
        chosen = choose_languages(source, languages, sorted(available), self.languages)
        collections = {}
        for pair, path in files.items():
            if set(pair) <= set(chosen):
                first, second = _read_commentaries(path, advice)
                gold_pairs = [(number, number) for number in first]
                collections["-".join(pair)] = DocumentCollection(pair, (first, second), gold_pairs)
        if not collections:
            listed = ", ".join("-".join(pair) for pair in files)
            expected = f"both languages of one file: {listed}"
            raise bad_value(source, None, "languages", chosen, expected, "Pass languages=[...].")
        provenance = provenance_of(self, source, None, copy=True)
        return AlignmentData(collections, provenance, lawdr=lawdr)


def _find_commentaries(folder: str) -> dict[LanguagePair, str]:
    """Return the files of commentaries by their pair of languages."""
    files = {}
    for path in sorted(Path(folder).rglob("news-commentary-*.tsv*")):
        stem = path.name.removesuffix(".gz").removesuffix(".tsv")
        pair = pair_of(stem.rpartition(".")[2])
        if pair is not None:
            files[pair] = str(path)
    return files


def _read_commentaries(path: str, advice: str) -> tuple[Documents, Documents]:
    """Return the documents of a file that have both sides, by their number."""
    first_documents: Documents = {}
    second_documents: Documents = {}
    for number, sentence_pairs in enumerate(_read_commentary_pairs(path, advice)):
        first_text = "\n".join(first for first, _ in sentence_pairs if first.strip())
        second_text = "\n".join(second for _, second in sentence_pairs if second.strip())
        if first_text and second_text:
            first_documents[str(number)] = first_text
            second_documents[str(number)] = second_text
    return first_documents, second_documents


def _read_commentary_pairs(path: str, advice: str) -> Iterator[list[tuple[str, str]]]:
    """Yield the pairs of sentences of each document.

    Raises:
        CorpusError: A line with text has no tab.
    """
    sentence_pairs: list[tuple[str, str]] = []
    for number, line in read_lines(path):
        if line.strip():
            first, tab, second = line.partition("\t")
            if not tab:
                expected = "two sentences with a tab between"
                raise bad_value(path, number, None, line, expected, advice)
            sentence_pairs.append((first, second))
        elif sentence_pairs:
            yield sentence_pairs
            sentence_pairs = []
    if sentence_pairs:
        yield sentence_pairs
