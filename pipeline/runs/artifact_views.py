"""Views of the artifacts of a run for the terminal: examples, statistics, schema, predictions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tfx.types import Artifact, artifact_utils
from tfx.utils import path_utils

from components.example_gen.paths import is_remote
from components.schema_reader import read_schema_artifact
from components.serving.model import load_model
from components.serving.requests import EXAMPLES_INPUT
from components.split_files import split_files
from components.tfrecords import read_batches
from pipeline.component_ids import ComponentId
from pipeline.config.sections.data import EVAL_SPLIT, TRAIN_SPLIT
from pipeline.config.settings import PipelineConfig
from pipeline.layout import Layout
from pipeline.records.metadata_store import connection_config
from pipeline.report.step_views import View
from pipeline.report.text import NONE, number, percent, shorten
from pipeline.runs.lineage import read_artifacts
from trainer_module.errors import ConfigError, counted
from trainer_module.export.interface import ModelInterface

MAX_COLUMNS = 40
"""The maximum number of columns of a view."""
_MAX_ACROSS = 8
"""The maximum number of columns that stand beside each other; more columns stand below each other,
with a few rows beside each other."""
_ROWS_ACROSS = 3
_CELL = 40
"""The maximum number of characters of a cell."""


class ArtifactViews:
    """The views of the artifacts of one run."""

    def __init__(self, config: PipelineConfig, layout: Layout, run_id: str) -> None:
        """Finds the artifacts of the run.

        Raises:
          ConfigError: the metadata has no such run.
        """
        self._run_id = run_id
        connection = connection_config(config.metadata, layout)
        self._steps = read_artifacts(connection, config.name, run_id)
        if not self._steps:
            raise ConfigError(
                f"run {run_id}: the metadata has no record of its artifacts, as retention has "
                f"deleted it (schedule.keep.runs) or {layout.metadata} is new; its summary.json "
                "and its report remain"
            )

    def view(self, component: ComponentId, rows: int) -> list[View]:
        """Returns the views of the artifacts of a component, which may be none.

        Raises:
          ConfigError: retention has deleted the artifacts.
        """
        readers = {
            ComponentId.EXAMPLE_GEN: self._view_examples,
            ComponentId.STATISTICS_GEN: self._view_statistics,
            ComponentId.SCHEMA_GEN: self._view_schema,
            ComponentId.TRANSFORM: self._view_transformed,
        }
        return list(readers[component](rows)) if component in readers else []

    def _output(self, component: ComponentId, key: str) -> Artifact:
        """Returns an existing output of a component; raises ConfigError if it was deleted."""
        step = self._steps.get(component)
        artifacts = step.outputs.get(key) if step else None
        if not artifacts:
            raise ConfigError(f"run {self._run_id}: {component} has left no {key}")
        artifact = artifacts[0]
        is_deleted = artifact.mlmd_artifact.state == artifact.mlmd_artifact.DELETED
        if is_deleted or not (is_remote(artifact.uri) or Path(artifact.uri).exists()):
            raise ConfigError(
                f"run {self._run_id}: the {key} of {component} were deleted, as retention keeps "
                f"only the artifacts of the newest runs (schedule.keep.runs): {artifact.uri}"
            )
        return artifact

    def _view_examples(self, rows: int) -> Iterator[View]:
        artifact = self._output(ComponentId.EXAMPLE_GEN, "examples")
        yield _view_rows("First rows of train", _first_examples(artifact, TRAIN_SPLIT, rows))

    def _view_transformed(self, rows: int) -> Iterator[View]:
        artifact = self._output(ComponentId.TRANSFORM, "transformed_examples")
        examples = _first_examples(artifact, TRAIN_SPLIT, rows)
        yield _view_rows("First transformed rows of train", examples)

    def _view_statistics(self, rows: int) -> Iterator[View]:
        # The import is here, because only readers of statistics need TFDV.
        from tfx.components.statistics_gen import stats_artifact_utils

        artifact = self._output(ComponentId.STATISTICS_GEN, "statistics")
        for split in artifact_utils.decode_split_names(artifact.split_names):
            dataset = stats_artifact_utils.load_statistics(artifact, split).proto().datasets[0]
            lines = [_describe(feature, dataset.num_examples) for feature in dataset.features]
            title = f"{split}: {counted(int(dataset.num_examples), 'row')}"
            yield View.of(title, _STATISTICS, sorted(lines), max(rows, MAX_COLUMNS))

    def _view_schema(self, rows: int) -> Iterator[View]:
        schema = read_schema_artifact(self._output(ComponentId.SCHEMA_GEN, "schema").uri)
        domains = {domain.name: domain.value for domain in schema.string_domain}
        lines = [_describe_feature(feature, domains) for feature in schema.feature]
        heads = ("column", "type", "present", "values")
        yield View.of("Schema", heads, lines, max(rows, MAX_COLUMNS))

    def predictions(self, rows: int) -> View:
        """Returns the model's predictions of the first rows of the eval split.

        Raises:
          ConfigError: the model or the examples were deleted.
          DataError: the model cannot be loaded.
        """
        model = self._output(ComponentId.TRAINER, "model")
        examples = self._output(ComponentId.EXAMPLE_GEN, "examples")
        folder = path_utils.serving_model_path(model.uri, path_utils.is_old_model_artifact(model))
        loaded = load_model(Path(folder))
        records = _first_records(examples, EVAL_SPLIT, rows)
        outputs = loaded.predict_examples({EXAMPLES_INPUT: np.array(records, dtype=object)})
        interface = loaded.interface
        labels = [
            _cells(tf.train.Example.FromString(r)).get(interface.label, NONE) for r in records
        ]
        predicted = [_show_outputs(outputs, row, interface) for row in range(len(records))]
        lines = [
            (str(row + 1), label, *answers.values())
            for row, (label, answers) in enumerate(zip(labels, predicted, strict=True))
        ]
        heads = ("row", interface.label or "label", *(predicted[0] if predicted else ()))
        return View("Predictions of the first rows of eval", heads, lines)


def _first_records(artifact: Artifact, split: str, rows: int) -> list[bytes]:
    records = (
        record
        for file in sorted(split_files([artifact], split))
        for batch in read_batches(file)
        for record in batch
    )
    return list(itertools.islice(records, rows))


def _first_examples(artifact: Artifact, split: str, rows: int) -> list[dict[str, str]]:
    records = _first_records(artifact, split, rows)
    return [_cells(tf.train.Example.FromString(record)) for record in records]


def _cells(example: Any) -> dict[str, str]:
    """Returns the values of an example as text, by column."""
    return {name: _cell(feature) for name, feature in sorted(example.features.feature.items())}


def _cell(feature: Any) -> str:
    kind = feature.WhichOneof("kind")
    values = list(getattr(feature, kind).value) if kind else []
    if not values:
        return NONE
    first = values[0]
    if isinstance(first, bytes):
        shown = [_text(value) for value in values[:_ROWS_ACROSS]]
    else:
        shown = [number(value) for value in values[:_ROWS_ACROSS]]
    if len(values) == 1:
        return shown[0]
    return (
        f"{', '.join(shown)}{', …' if len(values) > _ROWS_ACROSS else ''} ({len(values):,} values)"
    )


def _text(value: bytes) -> str:
    try:
        return shorten(value.decode(), _CELL)
    except UnicodeDecodeError:
        return counted(len(value), "byte")


def _view_rows(title: str, examples: Sequence[dict[str, str]]) -> View:
    """Returns a view of rows; many columns stand below each other."""
    columns = list(dict.fromkeys(name for example in examples for name in example))
    if len(columns) <= _MAX_ACROSS:
        lines = [tuple(example.get(name, NONE) for name in columns) for example in examples]
        return View(title, columns, lines)
    shown = examples[:_ROWS_ACROSS]
    lines = [(name, *(example.get(name, NONE) for example in shown)) for name in columns]
    heads = ("column", *(f"row {index + 1}" for index in range(len(shown))))
    return View.of(title, heads, lines, MAX_COLUMNS)


_BYTES = "__BYTES_VALUE__"
"""TFDV's placeholder for a value that is not text, such as a picture."""
_STATISTICS = (
    "column",
    "missing",
    "unique",
    "mean",
    "std",
    "min",
    "median",
    "max",
    "most frequent",
)


def _describe(feature: Any, rows: float) -> tuple[str, ...]:
    """Returns the statistics of a column in the order of `_STATISTICS`."""
    name = feature.name or ".".join(feature.path.step)
    kind = feature.WhichOneof("stats")
    stats = getattr(feature, kind)
    missing = percent(stats.common_stats.num_missing / rows) if rows else NONE
    if kind == "num_stats":
        values = (stats.mean, stats.std_dev, stats.min, stats.median, stats.max)
        return (name, missing, NONE, *map(number, values), NONE)
    if kind == "string_stats":
        frequent = [v for v in stats.top_values[:_ROWS_ACROSS] if v.value != _BYTES]
        top = [_frequency(value, rows) for value in frequent]
        return (name, missing, number(int(stats.unique)), *[NONE] * 5, ", ".join(top) or NONE)
    return (name, missing, *[NONE] * 7)


def _frequency(value: Any, rows: float) -> str:
    return f"{shorten(value.value, 20)} {percent(value.frequency / rows)}" if rows else value.value


def _describe_feature(feature: Any, domains: dict[str, Sequence[str]]) -> tuple[str, ...]:
    from tensorflow_metadata.proto.v0 import schema_pb2

    present = feature.presence.min_fraction
    values = list(feature.string_domain.value) or list(domains.get(feature.domain, []))
    if values:
        shown = f"{', '.join(shorten(v, 20) for v in values[:5])} ({counted(len(values), 'value')})"
    elif feature.HasField("int_domain"):
        shown = f"{feature.int_domain.min} to {feature.int_domain.max}"
    elif feature.HasField("float_domain"):
        shown = f"{number(feature.float_domain.min)} to {number(feature.float_domain.max)}"
    else:
        shown = ""
    kind = schema_pb2.FeatureType.Name(feature.type).lower()
    return feature.name, kind, percent(present) if present else "optional", shown


def _show_outputs(outputs: Any, row: int, interface: ModelInterface) -> dict[str, str]:
    """Returns the outputs of a row as text: for scores, the class with the highest score."""
    shown = {}
    for name, values in sorted(outputs.items()):
        answer = np.asarray(values[row])
        classes = interface.classes
        if answer.ndim == 1 and len(answer) == len(classes) and answer.dtype.kind == "f":
            best = int(np.argmax(answer))
            shown[name] = f"{classes[best]} ({percent(float(answer[best]))})"
        elif answer.size == 1:
            shown[name] = _scalar(answer.reshape(-1)[0])
        elif answer.dtype.kind == "f":
            shown[name] = ", ".join(number(float(v)) for v in answer.reshape(-1)[:_ROWS_ACROSS])
    return shown


def _scalar(value: Any) -> str:
    return _text(value) if isinstance(value, bytes) else number(value.item())
