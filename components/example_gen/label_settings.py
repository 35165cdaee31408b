"""Where labels are that come later than the rows: free of TensorFlow and TFX."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from trainer_module.errors import DataError, enumerate_names
from trainer_module.settings import Settings

_ENDINGS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}


class LabelsSettings(Settings):
    """Files of labels."""

    path: str = Field(min_length=1)
    """A file, folder or glob of CSV, JSON lines or Parquet, with a column of the label's name."""
    key: str = Field(min_length=1)
    """The column that is in the data and in these files, such as `request_id` of what `serve
    --log-requests` writes. Of several labels of a key the last one counts."""


def find_label_files(path: str) -> list[str]:
    """The files of labels, in the order of their names.

    Raises:
      DataError: there is none, or one is of no known format.
    """
    given = Path(path)
    if given.is_file():  # Whatever its name is.
        label_format(path)
        return [path]
    pattern = "*" if given.is_dir() else given.name
    folder = given if given.is_dir() else given.parent
    files = [
        str(found)
        for found in sorted(folder.glob(pattern))
        if found.is_file() and not found.name.startswith((".", "_"))
    ]
    if not files:
        raise DataError(f"data.labels.path: no file matches {path!r}; correct it.")
    for file in files:
        label_format(file)
    return files


def label_format(file: str) -> str:
    """The format of a file of labels, by its name.

    Raises:
      DataError: it is of no known one.
    """
    found = _ENDINGS.get(Path(file.lower().removesuffix(".gz")).suffix)
    if found is None:
        raise DataError(
            f"data.labels.path: {file} is of no known format; right are names that end in"
            f" {enumerate_names(_ENDINGS, 'or')}."
        )
    return found
