"""Compares requests that were served with what the model in service was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from components.example_gen.columns.encoded import ColumnKind
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.sources import make_source
from components.example_validator.drift import Drift
from components.example_validator.skew import ColumnSkew, measure_skew
from components.named_columns import check_named_columns
from pipeline.config.settings import PipelineConfig
from pipeline.data.span_files import File
from pipeline.layout import Layout
from pipeline.records.event_log import EventLog
from pipeline.runs.skew.training_statistics import training_statistics
from pipeline.versions.catalog import find_serving, read_catalog
from trainer_module.errors import ConfigError

MOST_ROWS = 200_000
"""That are compared, the newest: more would say nothing else."""


@dataclass(frozen=True)
class Comparison:
    """How far each column is from the training data."""

    version: int
    """That serves."""
    rows: int
    """That were compared."""
    columns: list[ColumnSkew]

    @property
    def skewed(self) -> dict[str, str]:
        """What is said of the columns that are skewed."""
        return {one.column: one.in_words for one in self.columns if one.is_skewed}


def compare_requests(
    config: PipelineConfig, layout: Layout, event_log: EventLog, files: Sequence[File]
) -> Comparison:
    """Compares the rows of some files.

    Args:
      config: with a section `skew`.
      layout: of the pipeline.
      event_log: of the pipeline.
      files: of requests, at least one, oldest first.

    Raises:
      ConfigError: nothing is served, or it is not known what that was trained on.
      DataError: a file, or a column, cannot be compared.
    """
    serving = find_serving(read_catalog(layout, event_log))
    if serving is None or not serving.is_ours:
        raise ConfigError(f"{layout.serving}: no version of this pipeline serves; run it first")
    trained = training_statistics(config, layout, serving)
    drift = Drift(config.skew.model_dump()["columns"])
    served = _read(files, list(drift.columns))
    return Comparison(serving.number, served.num_rows, measure_skew(served, drift, trained))


def _read(files: Sequence[File], columns: Sequence[str]) -> pa.RecordBatch:
    """The newest rows of some files."""
    settings = ExampleGenSettings(format="parquet", label="", task="binary")
    source, batches, rows = make_source(settings), [], 0
    for file in reversed(files):
        seen = source.glance((file.path,))
        named = {f"skew.columns.{name}": name for name in columns}
        check_named_columns(named, seen, f"file {file.path}")
        kinds = {name: kind for name, kind in seen.items() if name in columns}
        for batch in source.read((file.path,), _Kinds(kinds)):
            batches.append(batch.rows.select(columns))
            rows += batch.rows.num_rows
        if rows >= MOST_ROWS:
            break
    table = pa.Table.from_batches(batches).combine_chunks()
    return table.to_batches()[0]


class _Kinds(dict[str, ColumnKind]):
    """Columns that are not compared are not converted."""

    def __missing__(self, name: str) -> ColumnKind:
        return ColumnKind.UNKNOWN
