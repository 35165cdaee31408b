"""An Evaluator without TFMA: compares a family's own measurements with bounds and the model in
service.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from tfx.components.evaluator import constants
from tfx.dsl.components.base import base_component, base_executor, executor_spec
from tfx.types import (
    Artifact,
    BaseChannel,
    Channel,
    artifact_utils,
    component_spec,
    standard_artifacts,
)
from tfx.types import standard_component_specs as specs
from tfx.types.component_spec import ChannelParameter, ExecutionParameter
from tfx.utils import path_utils

from components.copying import read_text, write_text
from components.split_files import split_files
from trainer_module.errors import ScopelineError, TrainingError
from trainer_module.families import EXAMPLES_KEY
from trainer_module.families.measured import Estimate, Measured
from trainer_module.sections import load_own

REPORT_FILE = "measured.json"
"""The file of the `GateReport`, in the artifact of an evaluation."""
MEASURE_KEY, BOUNDS_KEY, CONFIDENCE_KEY = "measure", "bounds", "confidence"

NOT_COMPARED = (
    "the model in service cannot be measured: only evaluate.thresholds decide on the new model."
    " After its push, models are compared again"
)
"""The note in the summary if the data or the environment no longer fits the model in service."""

Ends = tuple[float, float]
"""The lower and the upper end of an interval."""


@dataclass(frozen=True)
class GateMetric:
    """A metric of the model, with the requirement that it has to meet and the failure if it does
    not.
    """

    name: str
    value: float | None
    """The metric's value; None if it is not finite, as JSON has no such numbers."""
    in_service: float | None
    """The metric of the model in service; None if there is no such model."""
    needs: str
    """The requirement, in words."""
    failure: str
    """The reason why the requirement is not met, in words; empty if it is met."""
    interval: Ends | None = None
    """The confidence interval of the value; None if the family returns no resamples."""
    difference: Ends | None = None
    """The confidence interval of the value minus that of the model in service."""


@dataclass(frozen=True)
class Bounds:
    """The requirements of a metric: its bounds, and its tolerance against the model in service."""

    name: str
    higher_is_better: bool
    least: float | None = None
    most: float | None = None
    tolerance: float = 0.0
    """The difference by which the metric may be worse than that of the model in service."""
    is_compared: bool = True
    """Whether the metric is compared with that of the model in service."""
    is_least_sure: bool = False
    """Whether the lower end of the interval has to keep `least`, and not only the value."""
    is_most_sure: bool = False
    """Whether the upper end of the interval has to keep `most`, and not only the value."""
    keeps_ties: bool = False
    """Whether the model in service stays if this metric is worse, but within noise."""

    def judge(self, metric: GateMetric) -> GateMetric:
        """Returns the metric with its requirement and, if it is not met, the reason."""
        return replace(metric, needs=self._requirement(metric), failure=self._failure(metric))

    def _requirement(self, metric: GateMetric) -> str:
        certain = {True: " for certain", False: ""}
        parts = (
            [] if self.least is None else [f"at least {self.least:g}{certain[self.is_least_sure]}"]
        )
        parts += [] if self.most is None else [f"at most {self.most:g}{certain[self.is_most_sure]}"]
        if metric.in_service is not None and self.is_compared:
            slack = f" by more than {self.tolerance:g}" if self.tolerance else ""
            noise = " beyond noise" if metric.difference and not self.keeps_ties else ""
            parts.append(f"not worse than in service{slack}{noise}")
        return ", ".join(parts)

    def _failure(self, metric: GateMetric) -> str:
        if metric.value is None:
            return f"{self.name} is not a number"
        text = f"{self.name} is {metric.value:.4g}"
        if self.least is not None and metric.value < self.least:
            return f"{text}, below the threshold of {self.least:g}"
        if self.most is not None and metric.value > self.most:
            return f"{text}, above the threshold of {self.most:g}"
        return self._interval_failure(metric, text) or self._comparison_failure(metric, text)

    def _interval_failure(self, metric: GateMetric, text: str) -> str:
        """Returns why an interval breaks a bound that its end has to keep; empty if it does not."""
        if not (self.is_least_sure or self.is_most_sure):
            return ""
        if metric.interval is None:
            return (
                f"{text} and has no confidence interval to compare with the threshold"
                f" (the family returns no resamples of {self.name} that are all numbers)"
            )
        low, high = metric.interval
        if self.least is not None and self.is_least_sure and low < self.least:
            return f"{text}, and the lower end of its interval, {low:.4g}, is below {self.least:g}"
        if self.most is not None and self.is_most_sure and high > self.most:
            return f"{text}, and the upper end of its interval, {high:.4g}, is above {self.most:g}"
        return ""

    def _is_worse(self, metric: GateMetric) -> bool:
        """Returns whether the metric is worse than in service by more than the tolerance."""
        if metric.in_service is None or metric.value is None or not self.is_compared:
            return False
        loss = (metric.in_service - metric.value) * (1 if self.higher_is_better else -1)
        return loss > self.tolerance

    def describe_tie(self, metric: GateMetric) -> str:
        """Returns by how much a metric is worse within noise; empty if it is not worse."""
        if metric.difference is None or not self._is_worse(metric):
            return ""
        low, high = metric.difference
        return (
            f"{self.name} {metric.value:.4g}, worse than {metric.in_service:.4g}, within noise"
            f" ({low:+.3g} to {high:+.3g})"
        )

    def _comparison_failure(self, metric: GateMetric, text: str) -> str:
        """Returns why the metric counts as worse than in service; empty if it does not."""
        if not self._is_worse(metric):
            return ""
        worse = f"{text}, worse than the {metric.in_service:.4g} of the model in service"
        key = f"evaluate.thresholds.{self.name}.tolerance"
        if metric.difference is None:
            return f"{worse} (a larger {key} allows for noise)"
        low, high = metric.difference
        shown = f"the difference lies between {low:+.3g} and {high:+.3g}"
        if (high < -self.tolerance) if self.higher_is_better else (low > self.tolerance):
            return f"{worse} beyond noise: {shown}. A larger {key} allows more"
        if self.keeps_ties:
            return f"{worse} within noise: {shown}. The model in service stays (evaluate.ties)"
        return ""


@dataclass(frozen=True)
class GateReport:
    """The measurements and the decision of an evaluation."""

    blessed: bool
    reason: str
    metrics: tuple[GateMetric, ...]
    confidence: float | None = None
    """The confidence of the intervals; None if there are none."""
    notes: tuple[str, ...] = ()
    """Sentences for the summary of the run."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Details that the family stores with the evaluation."""


def decide(
    bounds: Sequence[Bounds],
    measured: Measured,
    in_service: Measured | None,
    confidence: float | None = None,
) -> GateReport:
    """Returns the report on a model, with the decision whether to bless it.

    Args:
      bounds: the bounds of the metrics that decide; other metrics are reported only.
      measured: the measurements of the model.
      in_service: the measurements of the model in service, if there is one.
      confidence: the confidence of intervals; None to compare the values alone.

    Raises:
      TrainingError: a metric that decides was not measured, or the two models were resampled a
        different number of times.
    """
    if missing := [one.name for one in bounds if one.name not in measured.metrics]:
        raise TrainingError(
            f"evaluate: the thresholds need {', '.join(missing)}, but the family measures"
            f" {', '.join(measured.metrics) or 'nothing'}."
        )
    by_name, others = (
        {one.name: one for one in bounds},
        in_service.metrics if in_service else {},
    )
    found = [
        _compare(name, value, others.get(name), confidence)
        for name, value in measured.metrics.items()
    ]
    metrics = tuple(by_name[one.name].judge(one) if one.name in by_name else one for one in found)
    failures = [*measured.failures, *(metric.failure for metric in metrics if metric.failure)]
    reason = "; ".join(failures) or _blessing_reason(by_name, metrics, in_service is not None)
    has_intervals = any(metric.interval for metric in metrics)
    used_confidence = confidence if has_intervals else None
    return GateReport(
        not failures, reason, metrics, used_confidence, measured.notes, measured.details
    )


def _blessing_reason(
    by_name: Mapping[str, Bounds], metrics: Sequence[GateMetric], has_baseline: bool
) -> str:
    """Returns why a model is blessed."""
    has_bounds = any(one.least is not None or one.most is not None for one in by_name.values())
    thresholds = "every threshold is met" if has_bounds else "no thresholds are set"
    if not has_baseline:
        return f"{thresholds}, and there is no model in service to compare with"
    described = (by_name[one.name].describe_tie(one) for one in metrics if one.name in by_name)
    ties = ", ".join(tie for tie in described if tie)
    noise = f" beyond noise: {ties}" if ties else ""
    return f"{thresholds}, and it is not worse than the model in service{noise}"


def _compare(
    name: str,
    measured: float | Estimate,
    baseline: float | Estimate | None,
    confidence: float | None,
) -> GateMetric:
    """Returns a metric of both models, with intervals if the family has resampled it."""
    value, in_service = (
        _finite_value(measured),
        None if baseline is None else _finite_value(baseline),
    )
    interval = difference = None
    if confidence is not None and isinstance(measured, Estimate) and value is not None:
        interval = _finite_interval(measured.interval(confidence))
        if isinstance(baseline, Estimate) and in_service is not None:
            try:
                difference = _finite_interval(measured.difference(baseline, confidence))
            except ValueError as error:
                raise TrainingError(f"evaluate: {name}: {error}.") from None
    return GateMetric(name, value, in_service, "", "", interval, difference)


def _finite_interval(ends: Ends) -> Ends | None:
    """Returns an interval; None if an end is not finite, in which case the values are compared."""
    return ends if all(math.isfinite(end) for end in ends) else None


def _finite_value(measured: float | Estimate) -> float | None:
    value = measured.value if isinstance(measured, Estimate) else measured
    return float(value) if math.isfinite(value) else None


def read_report(uri: str) -> GateReport | None:
    """Returns the report of an evaluation; None if TFMA has written the evaluation."""
    text = read_text(uri, REPORT_FILE)
    return None if text is None else TypeAdapter(GateReport).validate_python(json.loads(text))


class GateExecutor(base_executor.BaseExecutor):
    """Measures a model and the one in service, and blesses the new one if it is good enough."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[Artifact]],
        output_dict: dict[str, list[Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Writes the report to `evaluation` and the decision to `blessing`.

        Raises:
          TrainingError: the measuring function does not exist, or leaves out a metric that decides.
        """
        custom_config = json.loads(exec_properties[specs.CUSTOM_CONFIG_KEY])
        if examples := input_dict.get(specs.EXAMPLES_KEY):
            names = artifact_utils.decode_split_names(examples[0].split_names)
            custom_config[EXAMPLES_KEY] = {name: split_files(examples, name) for name in names}
        measure = load_own("the measure of the task's family", exec_properties[MEASURE_KEY])
        bounds = [Bounds(**one) for one in json.loads(exec_properties[BOUNDS_KEY])]
        confidence = json.loads(exec_properties[CONFIDENCE_KEY])
        (model,), baselines = input_dict[specs.MODEL_KEY], input_dict.get(specs.BASELINE_MODEL_KEY)
        measured = _to_measured(measure(_model_folder(model), custom_config))
        in_service, notes = None, measured.notes
        if baselines:
            try:
                in_service = _to_measured(measure(_model_folder(baselines[0]), custom_config))
            except ScopelineError as error:
                notes = (*notes, f"{NOT_COMPARED} ({error})")
        report = decide(bounds, replace(measured, notes=notes), in_service, confidence)
        (evaluation,) = output_dict[specs.EVALUATION_KEY]
        write_text(_as_json(report), evaluation.uri, REPORT_FILE)
        (blessing,) = output_dict[specs.BLESSING_KEY]
        mark_blessing(input_dict, blessing, report.blessed)


def _as_json(report: GateReport) -> str:
    try:
        return json.dumps(asdict(report), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TrainingError(
            f"evaluate: the family's details cannot be written as JSON: {error}."
        ) from None


def _to_measured(result: Mapping[str, float] | Measured) -> Measured:
    return result if isinstance(result, Measured) else Measured(result)


def _model_folder(artifact: Artifact) -> Path:
    return Path(path_utils.serving_model_path(artifact.uri, is_old_artifact=False))


def mark_blessing(
    input_dict: Mapping[str, list[Artifact]], blessing: Artifact, is_good: bool
) -> None:
    """Writes the blessing and the properties that name the models, as TFX does.

    Args:
      input_dict: inputs with `model`, and `baseline_model` if there is one.
      blessing: the artifact.
      is_good: whether to bless the model.
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
    refused = (constants.NOT_BLESSED_FILE_NAME, constants.NOT_BLESSED_VALUE)
    file, value = found if is_good else refused
    write_text("", blessing.uri, file)
    blessing.set_int_custom_property(constants.ARTIFACT_PROPERTY_BLESSED_KEY, value)


class GateSpec(component_spec.ComponentSpec):
    """The inputs, outputs and parameters of the component; `GateEvaluator` explains the
    parameters.
    """

    PARAMETERS = {
        name: ExecutionParameter(type=str)
        for name in (MEASURE_KEY, BOUNDS_KEY, CONFIDENCE_KEY, specs.CUSTOM_CONFIG_KEY)
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
        confidence: float | None = None,
    ) -> None:
        """Constructs the TFX component.

        Args:
          model: a channel of Model.
          baseline_model: the model to beat; the channel may be empty.
          measure: the import path of a function from the folder of an exported model and the
            `custom_config` to the values of metrics by name, or to a `Measured`.
          bounds: the bounds of the metrics that decide.
          custom_config: the second argument of `measure`.
          examples: a channel of Examples, whose files `measure` may read.
          confidence: the confidence of the intervals of resampled metrics; None for no intervals.
        """
        spec = GateSpec(
            model=model,
            baseline_model=baseline_model,
            examples=examples,
            measure=measure,
            bounds=json.dumps([asdict(one) for one in bounds]),
            confidence=json.dumps(confidence),
            custom_config=json.dumps(custom_config),
            evaluation=Channel(type=standard_artifacts.ModelEvaluation),
            blessing=Channel(type=standard_artifacts.ModelBlessing),
        )
        super().__init__(spec=spec)
