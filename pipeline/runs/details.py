"""Collects the details of a run for its report, from artifacts and metadata."""

from __future__ import annotations

import logging
import posixpath
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from components.evaluator.explanation.record import EXAMPLES_FILE, EXPLANATION_FILE, Explanation
from pipeline.component_ids import ComponentId
from pipeline.config.settings import PipelineConfig
from pipeline.records.details import Lineage, RunDetails, StepCost
from pipeline.records.summary import RunSummary, State, Status
from pipeline.run_context import RunContext
from pipeline.runs.provenance import (
    code_version,
    config_without_secrets,
    describe_machine,
    package_versions,
)

if TYPE_CHECKING:
    from tfx.types import Artifact

    from pipeline.runs.lineage import StepArtifacts

logger = logging.getLogger(__name__)

_MAX_SLICES = 500
"""The maximum number of slices with intervals."""
_MAX_SPANS = 60
"""The maximum number of spans of a window whose statistics are read, the newest."""
_SECONDS_PER_HOUR = 3600
_T = TypeVar("_T")


def collect_details(
    context: RunContext, summary: RunSummary, costs: Mapping[str, StepCost] | None = None
) -> RunDetails:
    """Returns the details of a run that has ended.

    A part that cannot be read, such as deleted artifacts, is left out with a note. After a stop,
    nothing is read from artifacts and metadata, so that the process ends soon.

    Args:
      context: the context of the run.
      summary: the summary of the run, without details.
      costs: the measured costs of components, by name.
    """
    began = time.monotonic()
    collector = _Collector(context, summary)
    details = collector.collect(costs or {})
    details.seconds = round(time.monotonic() - began, 3)
    return details


@dataclass
class _Collector:
    """A collector of the parts of the details; each part is read on its own."""

    context: RunContext
    summary: RunSummary
    steps: dict[str, StepArtifacts] = field(default_factory=dict)
    details: RunDetails = field(default_factory=RunDetails)

    def collect(self, costs: Mapping[str, StepCost]) -> RunDetails:
        config, details = self.context.config, self.details
        details.config = self._read("the config", lambda: config_without_secrets(config), {})
        details.costs = _price(costs, self.summary, config.report.price_per_hour)
        lineage = details.lineage = Lineage(config=config.fingerprint)
        lineage.code = self._read("the version of the code", code_version, "")
        lineage.versions = self._read("the versions of packages", package_versions, {})
        lineage.machine = self._read("the machine", describe_machine, {})
        done = (State.RAN, State.CACHED)
        if self.summary.status is Status.INTERRUPTED:
            details.notes.append("the run was stopped, so its artifacts were not read")
        elif any(component.state in done for component in self.summary.components):
            self._read_artifacts(lineage)
        return details

    def _read_artifacts(self, lineage: Lineage) -> None:
        # The import is here, as a run that ends before TFX is imported has no artifacts.
        from pipeline.runs.lineage import describe_artifacts, read_artifacts

        connection, config = self.context.connection, self.context.config
        self.steps = self._read(
            "the metadata", lambda: read_artifacts(connection, config.name, self.summary.run_id), {}
        )
        described = self._read("the lineage", lambda: describe_artifacts(self.steps), ([], []))
        lineage.artifacts, lineage.edges = described
        self._read("the statistics", self._read_columns, None)
        for evaluation in self._outputs(ComponentId.EVALUATOR, "evaluation"):
            self._read(
                "the explanation", lambda uri=evaluation.uri: self._read_explanation(uri), None
            )
            self._read("the intervals", lambda uri=evaluation.uri: self._read_intervals(uri), None)
        for model in self._outputs(ComponentId.TRAINER, "model"):
            description = self._read("the model", lambda uri=model.uri: _describe_model(uri), {})
            self.details.model = description

    def _read(self, part: str, read: Callable[[], _T], default: _T) -> _T:
        """Returns a part of the details, or the default with a note if the part cannot be read."""
        try:
            return read()
        except Exception as error:
            logger.warning("The report lacks %s", part, exc_info=True)
            self.details.notes.append(
                f"{part} cannot be read: {type(error).__name__}: {error}"[:300]
            )
            return default

    def _outputs(self, component: str, key: str) -> list[Artifact]:
        return self.steps[component].outputs.get(key, []) if component in self.steps else []

    def _inputs(self, component: str, key: str) -> list[Artifact]:
        return self.steps[component].inputs.get(key, []) if component in self.steps else []

    def _read_columns(self) -> None:
        from pipeline.runs.column_statistics import summarise_columns

        for artifact in self._outputs(ComponentId.STATISTICS_GEN, "statistics"):
            splits, before = self._statistics_by_split(artifact)
            config = self.context.config
            types = column_types(config, self.summary)
            self.details.columns, self.details.columns_omitted = summarise_columns(
                splits, types, config.report.private, before
            )

    def _statistics_by_split(self, newest: Artifact) -> tuple[dict[str, list[Any]], Any]:
        """Returns the statistics by split, and those of the span before the newest, or None.

        With a window of spans, the split train is that of all spans, on which the model was
        trained.
        """
        from tfx.types import artifact_utils

        from pipeline.runs.column_statistics import LAST_SPAN
        from pipeline.runs.lineage import read_statistics_of

        train, name = "train", artifact_utils.decode_split_names
        splits = {split: [_load_statistics(newest, split)] for split in name(newest.split_names)}
        older = []
        if self.context.window is not None and train in splits:
            window = self._inputs(ComponentId.TRANSFORM, "examples")
            examples = sorted(window, key=lambda artifact: artifact.span)[-_MAX_SPANS:]
            found = read_statistics_of(self.context.connection, examples)
            statistics = [found[a.uri] for a in examples if a.uri in found]
            others = [artifact for artifact in statistics if artifact.id != newest.id]
            older = [_load_statistics(artifact, train) for artifact in others]
        if older:
            splits = {train: [*older, *splits[train]], LAST_SPAN: splits[train]} | {
                split: parts for split, parts in splits.items() if split != train
            }
        previous = self._inputs(ComponentId.EXAMPLE_VALIDATOR, "previous_statistics")
        if previous:
            return splits, _load_statistics(previous[0], train)
        return splits, older[-1] if older else None

    def _read_explanation(self, evaluation: str) -> None:
        from components.copying import read_text

        private = set(self.context.config.report.private)
        if (text := read_text(evaluation, EXPLANATION_FILE)) is not None:
            explanation = Explanation.model_validate_json(text)
            shown = [effect for effect in explanation.effects if effect.column not in private]
            self.details.explanation = explanation.model_copy(update={"effects": shown})
        path = posixpath.join(evaluation, EXAMPLES_FILE)
        if Path(path).is_file():
            self.details.worst_examples = path

    def _read_intervals(self, evaluation: str) -> None:
        from components.evaluator.intervals import read_intervals

        by_slice = read_intervals(evaluation).slices
        # The slice without a name is the whole split, whose intervals are among the metrics.
        named = [name for name in by_slice if name][:_MAX_SLICES]
        self.details.slice_intervals = {
            name: {
                metric: found.interval.ends
                for metric, found in by_slice[name].items()
                if found.interval is not None
            }
            for name in named
        }


def _price(
    costs: Mapping[str, StepCost], summary: RunSummary, price_per_hour: float | None
) -> dict[str, StepCost]:
    """Returns the costs of the components that ran, with their prices."""
    prices = {
        c.name: None if price_per_hour is None else c.seconds / _SECONDS_PER_HOUR * price_per_hour
        for c in summary.components
        if c.state in (State.RAN, State.FAILED)
    }
    return {
        name: cost.model_copy(update={"price": price})
        for name, price in prices.items()
        if (cost := costs.get(name)) is not None
    }


def column_types(config: PipelineConfig, summary: RunSummary) -> dict[str, str]:
    """Returns the types of columns by name: the type of the feature, `label`, `weight` or
    `ignored`.
    """
    from pipeline.runs.column_statistics import IGNORED, LABEL, WEIGHT

    features = {name: feature.type for name, feature in config.features.items()}
    inferred = {n: str(c.settings.get("type", "")) for n, c in summary.columns.items()}
    types = {n: IGNORED if t == "ignore" else t for n, t in (features | inferred).items()}
    weight = {config.data.weight: WEIGHT} if config.data.weight else {}
    return types | weight | {config.data.label: LABEL}


def _load_statistics(artifact: Artifact, split: str) -> Any:
    from tfx.components.statistics_gen import stats_artifact_utils

    return stats_artifact_utils.load_statistics(artifact, split).proto()


def _describe_model(uri: str) -> dict[str, object]:
    """Returns the size of an exported model in bytes, its inputs, and its number of parameters.

    What the folder lacks is left out: other code may have exported the model.
    """
    import tensorflow as tf

    from components.disk import sizes_below
    from trainer_module.errors import DataError
    from trainer_module.export.interface import read_interface

    folder = Path(uri) / "Format-Serving"
    if not folder.is_dir():
        return {}
    described: dict[str, object] = {"bytes": sum(sizes_below(folder))}
    try:
        columns = read_interface(folder).columns
        described["inputs"] = {column.name: column.dtype for column in columns}
    except DataError:
        pass
    if (folder / "variables" / "variables.index").exists():
        shapes = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
        described["parameters"] = _count_parameters(shapes)
    return described


def _count_parameters(checkpoint: Any) -> int:
    """Returns the number of values in the floating-point variables of a checkpoint."""
    import math

    types = checkpoint.get_variable_to_dtype_map()
    shapes = checkpoint.get_variable_to_shape_map()
    return sum(math.prod(shapes[name]) for name, dtype in types.items() if dtype.is_floating)
