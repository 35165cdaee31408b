"""Rows are compared by what is known of the files, whatever else a pipeline reads and writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from components.beam_workers.options import LOCAL_ARGS
from components.row_counts import count_read, count_written, write_row_counts
from components.spreading import SpreadFiles
from components.user_errors import find_user_error
from trainer_module.errors import InternalError

ROWS = 10


def make_span(root: Path, span: int, counted: bool = True) -> str:
    """A file of a span of examples, of ROWS rows."""
    file = root / "examples" / str(span) / "Split-train" / "data.gz"
    file.parent.mkdir(parents=True)
    file.touch()
    if counted:
        write_row_counts(str(file.parents[1]), {"Split-train/data.gz": ROWS})
    return str(file)


def transform(root: Path, written: Mapping[str, int]) -> None:
    """Reads files, and writes so many rows of each to an artifact of its own, as Transform does."""

    def work(file: str) -> None:
        count_read(file, ROWS)
        span = Path(file).parents[1].name
        count_written(str(root / "transformed" / span / "Split-train"), written[file])

    with beam.Pipeline(options=PipelineOptions(list(LOCAL_ARGS))) as pipeline:
        for number, file in enumerate(written):
            spread = SpreadFiles([file], [file], is_counted=True)
            counted = pipeline | f"Read[{number}]/Files" >> spread
            _ = counted | f"Read[{number}]/Work" >> beam.Map(work)


def test_missing_rows_of_one_span_are_found(tmp_path: Path) -> None:
    files = [make_span(tmp_path, span) for span in (1, 2)]
    with pytest.raises(InternalError, match="Split-train has 17 of 20 rows"):
        transform(tmp_path, {files[0]: ROWS, files[1]: ROWS - 3})


def test_span_without_row_counts_is_not_compared(tmp_path: Path) -> None:
    files = [make_span(tmp_path, 1, counted=False), make_span(tmp_path, 2)]
    transform(tmp_path, dict.fromkeys(files, ROWS))


def test_rows_that_were_not_read_are_found(tmp_path: Path) -> None:
    files = [make_span(tmp_path, 1, counted=False), make_span(tmp_path, 2)]
    write_row_counts(str(Path(files[1]).parents[1]), {"Split-train/data.gz": ROWS + 1})
    with pytest.raises(InternalError, match="10 of the 11 rows of") as raised:
        transform(tmp_path, dict.fromkeys(files, ROWS))
    assert find_user_error(raised.value) is not None
