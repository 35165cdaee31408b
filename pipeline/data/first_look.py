"""Checks local data before TFX is imported, so that problems are reported within seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from components.example_gen.files import is_gzip
from components.example_gen.formats import FORMATS, ExampleGenSettings
from components.example_gen.paths import is_remote
from components.example_gen.sources.surveys import read_known_kinds
from components.named_columns import check_named_columns
from pipeline.data.spans import Span
from trainer_module.sections import import_registered

if TYPE_CHECKING:
    from components.example_gen.first_look import FirstRows

MAX_BYTES = 64 << 20
"""The largest size in bytes to check; larger data would take too long."""
_GZIP_RATIO = 8
"""The typical compression ratio of a .gz file."""


def check_local_data(
    settings: ExampleGenSettings,
    columns_by_key: Mapping[str, str],
    span: Span,
    min_rows: int = 0,
) -> None:
    """Runs the checks of ExampleGen that need neither TensorFlow nor splits.

    Remote files and large data are not checked.

    Args:
      columns_by_key: the columns that the config names, by config key.
      span: the span to check; data without spans counts as one span.
      min_rows: the minimum number of rows.

    Raises:
      DataError: the files cannot be used, have too few rows, or lack a column of the config.
    """
    check = FORMATS[settings.format].first_look
    is_local = not any(is_remote(file.path) for file in span.files)
    if not check or not is_local or _is_large(span):
        return
    # A file may belong to several splits.
    files = list(dict.fromkeys(file.path for file in span.files))
    columns: frozenset[str] = import_registered(check)(settings, files, min_rows)
    # ExampleValidator reports columns of the schema that the new data lacks.
    available = sorted(columns | read_known_kinds(settings.schema_file).keys())
    check_named_columns(columns_by_key, available)


def read_first_rows(settings: ExampleGenSettings, span: Span) -> FirstRows | None:
    """Returns the first rows of a table, or None for remote files, pictures and large data.

    Args:
      span: the span to read; data without spans counts as one span.

    Raises:
      DataError: the files cannot be used.
    """
    spec = FORMATS[settings.format]
    files = list(dict.fromkeys(file.path for file in span.files))
    is_local = not any(map(is_remote, files))
    if not spec.first_look or spec.holds_images or not is_local or _is_large(span):
        return None
    # The import is here, as most commands read no data.
    from components.example_gen.first_look import read_first_rows as read

    return read(settings, files)


def _is_large(span: Span) -> bool:
    return sum(expanded_size(file.path, file.size) for file in span.files) > MAX_BYTES


def expanded_size(path: str, size: int) -> int:
    """Returns the approximate size of a file's content without compression."""
    return size * (_GZIP_RATIO if is_gzip(path) else 1)
