"""Reads the details of a run that are in its artifacts and in the metadata."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf
from tfx.components.statistics_gen import stats_artifact_utils
from tfx.types import Artifact, artifact_utils

from components.disk import sizes_below
from components.evaluator.explanation.artifact import read_explanation
from components.evaluator.explanation.record import EXAMPLES_FILE
from components.evaluator.intervals import read_intervals
from components.parts import Parts
from pipeline.component_ids import ComponentId
from pipeline.config.settings import PipelineConfig
from pipeline.records.details import ArtifactDetails, Lineage, RunDetails
from pipeline.records.summary import RunSummary
from pipeline.run_context import RunContext
from pipeline.runs.column_statistics import LAST_SPAN, TRAIN, summarise_columns
from pipeline.runs.lineage import (
    StepArtifacts,
    describe_artifacts,
    newest_statistics,
    read_artifacts,
)
from trainer_module.export.interface import INTERFACE_FILE, read_interface

_MAX_SLICES = 500
"""The maximum number of slices with intervals."""
_MAX_SPANS = 60
"""The maximum number of spans of a window whose statistics are read, the newest."""
_EXPORTED = "Format-Serving"
"""The folder of the SavedModel in a Model artifact."""


@dataclass
class ArtifactDetailsReader:
    """A reader that fills the details of a run; each part is read on its own."""

    _context: RunContext
    _summary: RunSummary
    _details: RunDetails
    _parts: Parts
    """The notes on parts that cannot be read."""
    _steps: dict[str, StepArtifacts] = field(default_factory=dict)

    def read(self) -> None:
        """Reads all parts of the details that are in artifacts or metadata."""
        name, run_id, read = self._context.config.name, self._summary.run_id, self._parts.make
        self._steps = read(
            "the metadata", lambda: read_artifacts(self._context.connection, name, run_id), {}
        )
        lineage = self._details.lineage = self._details.lineage or Lineage()
        nothing: tuple[list[ArtifactDetails], list[tuple[str, str]]] = ([], [])
        described = read("the lineage", lambda: describe_artifacts(self._steps), nothing)
        lineage.artifacts, lineage.edges = described
        for statistics in self._outputs(ComponentId.STATISTICS_GEN, "statistics"):
            read("the statistics", partial(self._read_columns, statistics), None)
        for evaluation in self._outputs(ComponentId.EVALUATOR, "evaluation"):
            read("the explanation", partial(self._read_explanation, evaluation.uri), None)
            read("the intervals", partial(self._read_intervals, evaluation.uri), None)
        for model in self._outputs(ComponentId.TRAINER, "model"):
            folder = Path(model.uri) / _EXPORTED
            self._details.model = read("the model", partial(describe_model, folder), {})

    def _outputs(self, component: str, key: str) -> list[Artifact]:
        return self._steps[component].outputs.get(key, []) if component in self._steps else []

    def _inputs(self, component: str, key: str) -> list[Artifact]:
        return self._steps[component].inputs.get(key, []) if component in self._steps else []

    def _read_columns(self, newest: Artifact) -> None:
        config, details = self._context.config, self._details
        names = artifact_utils.decode_split_names(newest.split_names)
        splits = {split: [_load_statistics(newest, split)] for split in names}
        older = self._older_statistics(newest) if TRAIN in splits else []
        if older:
            # The model was trained on all spans of the window, and evaluated on the newest.
            others = {split: parts for split, parts in splits.items() if split != TRAIN}
            splits = {TRAIN: [*older, *splits[TRAIN]], **others, LAST_SPAN: splits[TRAIN]}
        before: Any = older[-1] if older else None
        for artifact in self._inputs(ComponentId.EXAMPLE_VALIDATOR, "previous_statistics"):
            before = _load_statistics(artifact, TRAIN)
        details.columns, details.columns_omitted = summarise_columns(
            splits, column_types(config, self._summary), config.report.private, before
        )

    def _older_statistics(self, newest: Artifact) -> Sequence[Any]:
        """Returns the statistics of the window's other spans, split train, oldest first."""
        if self._context.window is None:
            return []
        window = self._inputs(ComponentId.TRANSFORM, "examples")
        examples = sorted(window, key=lambda artifact: artifact.span)[-_MAX_SPANS:]
        found = newest_statistics(self._context.connection, [a.uri for a in examples])
        statistics = [found[a.uri] for a in examples if a.uri in found]
        return [_load_statistics(a, TRAIN) for a in statistics if a.id != newest.id]

    def _read_explanation(self, evaluation: str) -> None:
        private = set(self._context.config.report.private)
        if (explanation := read_explanation(evaluation)) is not None:
            shown = [effect for effect in explanation.effects if effect.column not in private]
            self._details.explanation = explanation.model_copy(update={"effects": shown})
        path = posixpath.join(evaluation, EXAMPLES_FILE)
        if Path(path).is_file():
            self._details.worst_examples = path

    def _read_intervals(self, evaluation: str) -> None:
        by_slice = read_intervals(evaluation).slices
        # The slice without a name is the whole split, whose intervals are among the metrics.
        named = [name for name in by_slice if name][:_MAX_SLICES]
        self._details.slice_intervals = {
            name: {
                metric: found.interval.ends
                for metric, found in by_slice[name].items()
                if found.interval is not None
            }
            for name in named
        }


def _load_statistics(artifact: Artifact, split: str) -> Any:
    return stats_artifact_utils.load_statistics(artifact, split).proto()


def describe_model(folder: Path) -> dict[str, object]:
    """Returns the size of an exported model in bytes, its inputs, and its number of parameters.

    Values that the folder lacks are left out, as other code may have exported the model.

    Raises:
      DataError: the description of the inputs is damaged.
    """
    if not folder.is_dir():
        return {}
    described: dict[str, object] = {"bytes": sum(sizes_below(folder))}
    if (folder / INTERFACE_FILE).exists():
        columns = read_interface(folder).columns
        described["inputs"] = {column.name: column.dtype for column in columns}
    if (folder / "variables" / "variables.index").exists():
        variables = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
        types = variables.get_variable_to_dtype_map()
        shapes = variables.get_variable_to_shape_map()
        # Integers are counters and tables.
        numbers = [math.prod(shapes[name]) for name, kind in types.items() if kind.is_floating]
        described["parameters"] = sum(numbers)
    return described


def column_types(config: PipelineConfig, summary: RunSummary) -> dict[str, str]:
    """Returns the types of columns by name: the type of the feature, `label`, `weight` or
    `ignored`.

    Args:
      config: the config of the run, whose types take precedence.
      summary: the summary of the run, with the inferred types.
    """
    inferred = {name: str(c.settings.get("type", "")) for name, c in summary.columns.items()}
    features = inferred | {name: feature.type for name, feature in config.features.items()}
    types = {name: "ignored" if t == "ignore" else t for name, t in features.items()}
    weight = {config.data.weight: "weight"} if config.data.weight else {}
    return types | weight | {config.data.label: "label"}
