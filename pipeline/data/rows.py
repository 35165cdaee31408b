"""Whether a span holds a row at all: by the sizes of its files, and by a look into small ones."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from components.example_gen.formats import FORMATS, CsvSettings
from pipeline.config.sections.data import DataSettings
from pipeline.data.span_files import File
from trainer_module.sections import import_registered

_LARGEST_WITHOUT_ROWS = 1 << 20
"""A file of more bytes is not looked into: no header is so long."""


def are_empty(files: Iterable[File], data: DataSettings) -> bool:
    """Whether none of some files holds a row."""
    return not any(_holds_rows(file, data.format, data.csv.model_dump_json()) for file in files)


@functools.lru_cache(maxsize=1000)
def _holds_rows(file: File, data_format: str, settings: str) -> bool:
    """The same of a file; cached, as checks for new data come every few minutes."""
    look = FORMATS[data_format].holds_rows
    if not look or not file.size or file.size > _LARGEST_WITHOUT_ROWS:
        return bool(file.size)
    holds_rows: bool = import_registered(look)(file.path, CsvSettings.model_validate_json(settings))
    return holds_rows
