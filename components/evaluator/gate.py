"""Evaluator without TFMA: a family measures its models, bounds and the model in service decide."""

from __future__ import annotations

import json
import math
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfx.components.evaluator import constants
from tfx.dsl.components.base import base_component, base_executor, executor_spec
from tfx.dsl.io import fileio
from tfx.types import (
    Artifact,
    BaseChannel,
    Channel,
    component_spec,
    standard_artifacts,
)
from tfx.types import standard_component_specs as specs
from tfx.types.component_spec import ChannelParameter, ExecutionParameter
from tfx.utils import io_utils, path_utils

from trainer_module.errors import TrainingError
from trainer_module.sections import load_own

REPORT_FILE = "measured.json"
"""In the artifact of an evaluation: what was measured, and what was decided."""
MEASURE_KEY, BOUNDS_KEY = "measure", "bounds"


@dataclass(frozen=True)
class Bounds:
    """What a metric has to keep."""

    name: str
    higher_is_better: bool
    least: float | None = None
    most: float | None = None
    tolerance: float = 0.0
    """How much worse than the model in service it may be."""
    is_compared: bool = True
    """Whether it is held against the model in service."""

    def needs(self, in_service: float | None) -> str:
        """What is asked, in words; empty if nothing."""
        asked = [] if self.least is None else [f"at least {self.least:g}"]
        asked += [] if self.most is None else [f"at most {self.most:g}"]
        if in_service is not None and self.is_compared:
            slack = f" by more than {self.tolerance:g}" if self.tolerance else ""
            asked.append(f"not worse than in service{slack}")
        return ", ".join(asked)

    def failure(self, value: float, in_service: float | None) -> str:
        """Why a value is not good enough; empty if it is."""
        said = f"{self.name} is {value:.4g}"
        if not math.isfinite(value):
            return f"{said}, not a number"
        if self.least is not None and value < self.least:
            return f"{said}, below the threshold of {self.least:g}"
        if self.most is not None and value > self.most:
            return f"{said}, above the threshold of {self.most:g}"
        if in_service is None or not math.isfinite(in_service) or not self.is_compared:
            return ""
        loss = (in_service - value) * (1 if self.higher_is_better else -1)
        if loss <= self.tolerance:
            return ""
        return (
            f"{said}, worse than {in_service:.4g} of the model in service"
            f" (evaluate.thresholds.{self.name}.tolerance allows for noise)"
        )


@dataclass(frozen=True)
class GateMetric:
    """One metric of a model."""

    name: str
    value: float | None
    """None where it is not a number, which JSON has none of."""
    in_service: float | None
    """The same of the model to beat; None if there is none."""
    needs: str
    """What is asked of it, in words."""
    failure: str
    """What is wrong with it, in words; empty if nothing is."""


@dataclass(frozen=True)
class GateReport:
    """What was measured and decided."""

    blessed: bool
    reason: str
    metrics: tuple[GateMetric, ...]


def decide(
    bounds: Sequence[Bounds],
    measured: Mapping[str, float],
    in_service: Mapping[str, float] | None,
) -> GateReport:
    """Judges a model by its metrics.

    Args:
      bounds: of the metrics that decide; what else was measured is told and decides nothing.
      measured: values by name.
      in_service: those of the model to beat, if there is one.

    Raises:
      TrainingError: a metric that decides was not measured.
    """
    if missing := [one.name for one in bounds if one.name not in measured]:
        raise TrainingError(
            f"evaluate: the family measures {', '.join(measured) or 'nothing'}, and not"
            f" {', '.join(missing)}, which decides."
        )
    held, metrics = {one.name: one for one in bounds}, []
    for name, value in measured.items():
        other, one = (in_service or {}).get(name), held.get(name)
        needs, failure = (one.needs(other), one.failure(value, other)) if one else ("", "")
        metrics.append(GateMetric(name, _finite(value), _finite(other), needs, failure))
    failures = [metric.failure for metric in metrics if metric.failure]
    has_bounds = any(one.least is not None or one.most is not None for one in bounds)
    kept = "every threshold is kept" if has_bounds else "no thresholds are set"
    compared = "it is not worse than the model in service"
    if in_service is None:
        compared = "no model in service was compared with"
    reason = "; ".join(failures) or f"{kept}, and {compared}"
    return GateReport(not failures, reason, tuple(metrics))


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def read_report(uri: str) -> GateReport | None:
    """What the artifact of an evaluation says; None where TFMA has written it."""
    path = posixpath.join(uri, REPORT_FILE)
    if not fileio.exists(path):
        return None
    with fileio.open(path, "r") as opened:
        content = json.loads(opened.read())
    metrics = tuple(GateMetric(**metric) for metric in content.pop("metrics"))
    return GateReport(**content, metrics=metrics)


class GateExecutor(base_executor.BaseExecutor):
    """Measures a model and the one in service, and blesses the new one if it is good enough."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[Artifact]],
        output_dict: dict[str, list[Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Takes what `GateSpec` says; gives `evaluation` with the report, and `blessing`.

        Raises:
          TrainingError: what measures is not there, or lacks a metric that decides.
        """
        told = json.loads(exec_properties[specs.CUSTOM_CONFIG_KEY])
        measure = load_own("the measure of the task's family", exec_properties[MEASURE_KEY])
        bounds = [Bounds(**one) for one in json.loads(exec_properties[BOUNDS_KEY])]
        baselines = input_dict.get(specs.BASELINE_MODEL_KEY) or []
        measured = [
            {name: float(value) for name, value in measure(_exported(artifact), told).items()}
            for artifact in (*input_dict[specs.MODEL_KEY], *baselines)
        ]
        report = decide(bounds, measured[0], measured[1] if baselines else None)
        (evaluation,) = output_dict[specs.EVALUATION_KEY]
        text = json.dumps(asdict(report), allow_nan=False)
        io_utils.write_string_file(posixpath.join(evaluation.uri, REPORT_FILE), text)
        (blessing,) = output_dict[specs.BLESSING_KEY]
        mark_blessing(input_dict, blessing, report.blessed)


def _exported(artifact: Artifact) -> Path:
    return Path(path_utils.serving_model_path(artifact.uri, is_old_artifact=False))


def mark_blessing(
    input_dict: Mapping[str, list[Artifact]], blessing: Artifact, is_good: bool
) -> None:
    """Says of which models a blessing is, and whether the new one is good enough, as TFX does.

    Args:
      input_dict: with `model`, and `baseline_model` if there is one.
      blessing: the artifact.
      is_good: whether the new one is.
    """
    names = {
        specs.MODEL_KEY: (
            constants.ARTIFACT_PROPERTY_CURRENT_MODEL_URI_KEY,
            constants.ARTIFACT_PROPERTY_CURRENT_MODEL_ID_KEY,
        ),
        specs.BASELINE_MODEL_KEY: (
            constants.ARTIFACT_PROPERTY_BASELINE_MODEL_URI_KEY,
            constants.ARTIFACT_PROPERTY_BASELINE_MODEL_ID_KEY,
        ),
    }
    for key, (uri, number) in names.items():
        for artifact in input_dict.get(key) or []:
            blessing.set_string_custom_property(uri, artifact.uri)
            blessing.set_int_custom_property(number, artifact.id)
    found = (constants.BLESSED_FILE_NAME, constants.BLESSED_VALUE)
    missed = (constants.NOT_BLESSED_FILE_NAME, constants.NOT_BLESSED_VALUE)
    file, value = found if is_good else missed
    io_utils.write_string_file(posixpath.join(blessing.uri, file), "")
    blessing.set_int_custom_property(constants.ARTIFACT_PROPERTY_BLESSED_KEY, value)


class GateSpec(component_spec.ComponentSpec):
    """What it takes and gives; the parameters are explained at the component."""

    PARAMETERS = {
        name: ExecutionParameter(type=str)
        for name in (MEASURE_KEY, BOUNDS_KEY, specs.CUSTOM_CONFIG_KEY)
    }
    INPUTS = {
        specs.MODEL_KEY: ChannelParameter(type=standard_artifacts.Model),
        specs.BASELINE_MODEL_KEY: ChannelParameter(type=standard_artifacts.Model, optional=True),
        specs.EXAMPLES_KEY: ChannelParameter(type=standard_artifacts.Examples, optional=True),
    }
    OUTPUTS = {
        specs.EVALUATION_KEY: ChannelParameter(type=standard_artifacts.ModelEvaluation),
        specs.BLESSING_KEY: ChannelParameter(type=standard_artifacts.ModelBlessing),
    }


class GateEvaluator(base_component.BaseComponent):
    """Measures a model by a function of its family, and decides whether it is good enough."""

    SPEC_CLASS = GateSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(GateExecutor)

    def __init__(
        self,
        model: BaseChannel,
        baseline_model: BaseChannel,
        measure: str,
        bounds: Sequence[Bounds],
        custom_config: Mapping[str, Any],
        examples: BaseChannel | None = None,
    ) -> None:
        """Constructs the component.

        Args:
          model: a channel of Model.
          baseline_model: the model to beat; the channel may be empty.
          measure: the import path of a function from the folder of an exported model and the
            `custom_config` to the values of metrics by name.
          bounds: of the metrics that decide.
          custom_config: what `measure` is told.
          examples: a channel of Examples, which a family may have read.
        """
        spec = GateSpec(
            model=model,
            baseline_model=baseline_model,
            examples=examples,
            measure=measure,
            bounds=json.dumps([asdict(one) for one in bounds]),
            custom_config=json.dumps(custom_config),
            evaluation=Channel(type=standard_artifacts.ModelEvaluation),
            blessing=Channel(type=standard_artifacts.ModelBlessing),
        )
        super().__init__(spec=spec)
