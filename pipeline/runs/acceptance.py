"""Adapts the schema to the anomalies that the last run found in its data."""

from __future__ import annotations

import difflib
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from tensorflow_metadata.proto.v0 import statistics_pb2
from tfx.dsl.io import fileio

from components.example_validator.anomalies import contradicted_columns
from components.schema_gen.files import edit_schema, read_schema, replace_text, schema_content
from components.schema_gen.inference import accept_data
from pipeline.component_ids import ComponentId
from pipeline.config.settings import PipelineConfig
from pipeline.layout import Layout
from pipeline.runs.last_execution import find_last_execution
from trainer_module.errors import ConfigError
from trainer_module.settings import ImageFeature


@dataclass(frozen=True)
class Acceptance:
    """A change of a schema's file."""

    path: str
    columns: tuple[str, ...]
    """The columns that contradict the schema and were accepted."""
    before: str
    """The text of the file before the change."""
    after: str
    """The text of the file after the change."""

    @property
    def diff(self) -> str:
        """The changed lines as a unified diff."""
        before, after = self.before.splitlines(), self.after.splitlines()
        return "\n".join(difflib.unified_diff(before, after, self.path, self.path, lineterm=""))

    def write(self) -> None:
        """Writes the changed file atomically."""
        replace_text(self.path, self.after)


def accept_last_data(
    config: PipelineConfig, layout: Layout, chosen: Sequence[str] = ()
) -> Acceptance:
    """Returns the change with which the schema accepts the data that was checked last.

    Args:
      chosen: the columns to accept; default: all columns that contradict the schema.

    Raises:
      ConfigError: no data was checked yet, or a chosen column does not contradict the schema.
      DataError: the schema cannot be read.
    """
    path = config.schema_file or layout.kept_schema
    last = find_last_execution(config, layout, ComponentId.EXAMPLE_VALIDATOR, has_ended=False)
    if last is None or not fileio.exists(path):
        raise ConfigError(
            f"no data of {config.name} has been checked in {layout.root}; run the pipeline first."
        )
    statistics = _read_statistics(last.uris["statistics"][0])
    schema = read_schema(path, config.data.label)
    columns = _choose(contradicted_columns(schema, statistics), chosen)
    images = config.columns_of(ImageFeature)
    accepted = accept_data(schema, statistics, columns, config.data.label, config.task, images)
    before = schema_content(path).decode()
    return Acceptance(path, tuple(columns), before, edit_schema(before, schema, accepted))


def _choose(columns: list[str], chosen: Sequence[str]) -> list[str]:
    for column in chosen:
        if column not in columns:
            other = f"expected {', '.join(columns)}" if columns else "all columns agree with it"
            raise ConfigError(f"--column {column}: the column agrees with the schema; {other}.")
    return list(chosen) or columns


def _read_statistics(uri: str) -> list[statistics_pb2.DatasetFeatureStatisticsList]:
    """Returns the statistics of all splits, from the files that StatisticsGen writes."""
    splits = [name for name in sorted(fileio.listdir(uri)) if name.startswith("Split-")]
    statistics = []
    for split in splits:
        with fileio.open(posixpath.join(uri, split, "FeatureStats.pb"), "rb") as file:
            statistics.append(statistics_pb2.DatasetFeatureStatisticsList.FromString(file.read()))
    return statistics
