"""The suffixes of the files that hold rows: of parallel text, and of documents."""

from typing import Literal

TableFormat = Literal["jsonl", "csv", "tsv", "parquet"]

TABLE_FORMATS: dict[str, TableFormat] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
}
# Such a file of rows is read if the user names it. In folders, it is often one of settings.
SETTINGS_SUFFIX = ".json"
