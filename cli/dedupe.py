"""`tmde dedupe`: documents in, the same without those that repeat others out."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from tmde.cli import options as common
from tmde.cli.errors import OptionError
from tmde.embedding.packaged_models import DEFAULT_MODEL


@common.with_options(
    probabilities=common.PROBABILITY_OPTIONS,
    loading=common.MODEL_OPTIONS | common.LONG_OPTIONS,
)
def dedupe(
    documents: Annotated[str, Argument(metavar="DOCS", help=common.DOCUMENTS_HELP)],
    out: Annotated[
        Path,
        Option("--output", "-o", metavar="OUT", help="Documents that are kept: .jsonl."),
    ],
    groups: Annotated[
        Path | None,
        Option(help="File of the groups of documents that say the same: .jsonl."),
    ] = None,
    format: common.FormatOption = None,
    quoting: common.QuotingOption = None,
    field: common.FieldOption = None,
    id_field: common.IdFieldOption = None,
    min_similarity: Annotated[
        float, Option(min=0, max=1, help="Similarity of near-duplicates, from 0 to 1.")
    ] = 0.7,
    across_languages: Annotated[
        bool, Option("--across-languages", help="Remove translations, too.")
    ] = False,
    language_field: common.LanguageFieldOption = None,
    model: Annotated[
        str | None,
        Option(
            "--model",
            "-m",
            help="Model that finds translations: folder or Hub id. Default: the model of tmde.",
            callback=common.check_model_name,
        ),
    ] = None,
    overwrite: common.OverwriteOption = False,
    *,
    probabilities: dict[str, Any],
    loading: dict[str, Any],
) -> None:
    """Remove documents that repeat an earlier one.

    Copies are equal but for case and white space. Near-duplicates share most of their characters.
    With --across-languages, translations of an earlier document are removed, too, if they are
    translations with a probability of 0.9 or more. Only these need a model.

        tmde dedupe news.jsonl -o unique.jsonl --groups groups.jsonl

        tmde dedupe news.jsonl -o unique.jsonl --across-languages --language-field lang

    Without a column of languages, --across-languages identifies the language of each document
    (extra clean).

    DOCS is text (one document a line), CSV, TSV, JSONL or parquet with a column "text", any of them
    gzipped; or a folder of .txt and .md files (one document each; folders de/, en/ ... name the
    language) or of such tables. OUT has all their columns.
    """
    _check_options_of_translations(across_languages, model, language_field, probabilities | loading)
    target = common.check_output(out, overwrite, [".jsonl"])
    groups_target = None
    if groups is not None:
        groups_target = common.check_output(groups, overwrite, [".jsonl"], "--groups")
        common.check_different(target, groups_target, "--output and --groups")
    common.check_sources(documents)
    from tmde.cli.dedupe_file import DedupeJob, dedupe_file
    from tmde.documents.pair_probabilities import ProbabilityOptions

    job = DedupeJob(
        documents=documents,
        output=out,
        target=target,
        groups_output=groups,
        groups_target=groups_target,
        model=model or DEFAULT_MODEL,
        loading={"long_documents": "sentences"} | loading,
        format=format,
        quoting=quoting,
        field=field,
        id_field=id_field,
        language_field=language_field,
        min_similarity=min_similarity,
        across_languages=across_languages,
        probabilities=ProbabilityOptions(**probabilities),
    )
    dedupe_file(job)


def _check_options_of_translations(
    across_languages: bool,
    model: str | None,
    language_field: str | None,
    other_options: dict[str, Any],
) -> None:
    """Raise `OptionError` if options for translations are given, and none are searched for.

    Args:
        across_languages: Whether translations are searched for.
        model: The model that finds them.
        language_field: The column of the languages.
        other_options: Further options of the model and of probabilities that the user has set.
    """
    if across_languages:
        return
    options = list(other_options)
    if model is not None:
        options.insert(0, "model")
    if language_field is not None:
        options.insert(0, "language_field")
    if options:
        option = options[0].replace("_", "-")
        raise OptionError(
            f"--{option} needs --across-languages: only translations are found by a model and by "
            "the languages of the documents"
        )
