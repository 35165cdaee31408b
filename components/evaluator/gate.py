"""The Evaluator of families that measure without TFMA.

A function of the family measures the model. The metrics are compared with their bounds and with the
model in service.
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
from components.split_files import Artifacts, split_files
from trainer_module.errors import ScopelineError, TrainingError
from trainer_module.families import EXAMPLES_KEY
from trainer_module.families.measured import Estimate, Measured
from trainer_module.sections import load_own

REPORT_FILE = "measured.json"
"""The file of the `GateReport`, in the artifact of an evaluation."""
MEASURE_KEY, BOUNDS_KEY, CONFIDENCE_KEY = "measure", "bounds", "confidence"

NOT_COMPARED = (
    "the model in service cannot be measured. Only evaluate.thresholds decide on the new model."
    " Comparisons resume after its push"
)
"""The note in the run's summary if measuring the model in service fails."""

Ends = tuple[float, float]
"""The lower and the upper end of an interval."""


@dataclass(frozen=True)
class GateMetric:
    """A metric of the model, its requirement, and the reason if the requirement is not met."""

    name: str
    value: float | None
    """The metric's value, or None if the value is not finite, because JSON has no such numbers."""
    in_service: float | None
    """The value for the model in service, or None if there is no model in service."""
    needs: str
    """The requirement, in words."""
    failure: str
    """The reason why the requirement is not met, in words. Empty if the requirement is met."""
    interval: Ends | None = None
    """The confidence interval of the value, or None if the family returns no resamples."""
    difference: Ends | None = None
    """The confidence interval of the difference: the value minus the value in service."""


@dataclass(frozen=True)
class Bounds:
    """The requirements of a metric: bounds, and a comparison with the model in service."""

    name: str
    higher_is_better: bool
    least: float | None = None
    most: float | None = None
    tolerance: float = 0.0
    """How much worse than for the model in service the metric may be."""
    is_compared: bool = True
    """Whether the metric is compared with the model in service."""
    is_least_sure: bool = False
    """Whether the lower end of the interval has to be at least `least`, and not only the value."""
    is_most_sure: bool = False
    """Whether the upper end of the interval has to be at most `most`, and not only the value."""
    keeps_ties: bool = False
    """Whether a new model is rejected if this metric is worse, but not significantly worse."""

    def judge(self, metric: GateMetric) -> GateMetric:
        """Returns the metric with its requirement and, if it is not met, the reason."""
        return replace(metric, needs=self._requirement(metric), failure=self._failure(metric))

    def _requirement(self, metric: GateMetric) -> str:
        parts = []
        if self.least is not None:
            certainty = " for certain" if self.is_least_sure else ""
            parts.append(f"at least {self.least:g}{certainty}")
        if self.most is not None:
            certainty = " for certain" if self.is_most_sure else ""
            parts.append(f"at most {self.most:g}{certainty}")
        if metric.in_service is not None and self.is_compared:
            tolerance = f" by more than {self.tolerance:g}" if self.tolerance else ""
            adverb = "significantly " if metric.difference and not self.keeps_ties else ""
            parts.append(f"not {adverb}worse than in service{tolerance}")
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
        """Returns the bound that an end of the interval breaks, in words, or an empty string."""
        if not (self.is_least_sure or self.is_most_sure):
            return ""
        if metric.interval is None:
            return (
                f"{text} and has no confidence interval to compare with the threshold"
                f" (the family returns no resamples of {self.name}, or some are not finite)"
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
        """Returns the loss of a metric that is worse, but not significantly worse.

        The string is empty if the metric is not worse.
        """
        if metric.difference is None or not self._is_worse(metric):
            return ""
        low, high = metric.difference
        return (
            f"{self.name} {metric.value:.4g}, not significantly worse than {metric.in_service:.4g}"
            f" (difference: {low:+.3g} to {high:+.3g})"
        )

    def _comparison_failure(self, metric: GateMetric, text: str) -> str:
        """Returns the reason if the comparison with the model in service fails, or else ''."""
        if not self._is_worse(metric):
            return ""
        worse = f"worse than the {metric.in_service:.4g} of the model in service"
        key = f"evaluate.thresholds.{self.name}.tolerance"
        if metric.difference is None:
            return f"{text}, {worse} (a larger {key} allows a larger difference)"
        low, high = metric.difference
        difference = f"the difference lies between {low:+.3g} and {high:+.3g}"
        if (high < -self.tolerance) if self.higher_is_better else (low > self.tolerance):
            return (
                f"{text}, significantly {worse}: {difference}. A larger {key} allows a larger"
                " difference"
            )
        if self.keeps_ties:
            return (
                f"{text}, not significantly {worse}: {difference}. The model in service is kept"
                " (evaluate.ties: keep)"
            )
        return ""


@dataclass(frozen=True)
class GateReport:
    """The measurements and the decision of an evaluation."""

    blessed: bool
    reason: str
    metrics: tuple[GateMetric, ...]
    confidence: float | None = None
    """The confidence of the intervals, or None if there are no intervals."""
    notes: tuple[str, ...] = ()
    """Sentences for the summary of the run."""
    details: Mapping[str, Any] = field(default_factory=dict)


def decide(
    bounds: Sequence[Bounds],
    measured: Measured,
    in_service: Measured | None,
    confidence: float | None = None,
) -> GateReport:
    """Returns the report on a model, with the decision whether to bless it.

    Args:
      bounds: the bounds of the metrics that decide; other metrics are only reported.
      confidence: the confidence of the intervals, or None to compare only the values.

    Raises:
      TrainingError: a metric that decides was not measured, or the family resampled the two
        models a different number of times.
    """
    if missing := [bound.name for bound in bounds if bound.name not in measured.metrics]:
        raise TrainingError(
            f"evaluate.thresholds: there are thresholds for {', '.join(missing)}, but the family"
            f" measures only: {', '.join(measured.metrics) or 'nothing'}."
        )
    by_name = {bound.name: bound for bound in bounds}
    service_metrics = in_service.metrics if in_service else {}
    compared = [
        _compare(name, value, service_metrics.get(name), confidence)
        for name, value in measured.metrics.items()
    ]
    metrics = tuple(
        by_name[metric.name].judge(metric) if metric.name in by_name else metric
        for metric in compared
    )
    failures = [*measured.failures, *(metric.failure for metric in metrics if metric.failure)]
    reason = "; ".join(failures) or _blessing_reason(by_name, metrics, in_service is not None)
    has_intervals = any(metric.interval for metric in metrics)
    used_confidence = confidence if has_intervals else None
    return GateReport(
        not failures, reason, metrics, used_confidence, measured.notes, measured.details
    )


def _blessing_reason(
    by_name: Mapping[str, Bounds], metrics: Sequence[GateMetric], has_model_in_service: bool
) -> str:
    """Returns the reason why a model is blessed."""
    has_bounds = any(
        bounds.least is not None or bounds.most is not None for bounds in by_name.values()
    )
    thresholds = "every threshold is met" if has_bounds else "no thresholds are set"
    if not has_model_in_service:
        return f"{thresholds}, and there is no model in service to compare with"
    described = (
        by_name[metric.name].describe_tie(metric) for metric in metrics if metric.name in by_name
    )
    ties = ", ".join(tie for tie in described if tie)
    if ties:
        return f"{thresholds}, and the model is not significantly worse than in service: {ties}"
    return f"{thresholds}, and the model is not worse than the model in service"


def _compare(
    name: str,
    new: float | Estimate,
    old: float | Estimate | None,
    confidence: float | None,
) -> GateMetric:
    """Returns a metric of both models, with intervals if the family has resampled the metric."""
    value = _finite_value(new)
    in_service = None if old is None else _finite_value(old)
    interval = difference = None
    if confidence is not None and isinstance(new, Estimate) and value is not None:
        interval = _finite_interval(new.interval(confidence))
        if isinstance(old, Estimate) and in_service is not None:
            try:
                difference = _finite_interval(new.difference(old, confidence))
            except ValueError as error:
                raise TrainingError(f"evaluate: {name}: {error}.") from None
    return GateMetric(name, value, in_service, "", "", interval, difference)


def _finite_interval(ends: Ends) -> Ends | None:
    """Returns an interval, or None if an end is not finite. Then only the values are compared."""
    return ends if all(math.isfinite(end) for end in ends) else None


def _finite_value(measured: float | Estimate) -> float | None:
    value = measured.value if isinstance(measured, Estimate) else measured
    return float(value) if math.isfinite(value) else None


def read_report(uri: str) -> GateReport | None:
    """Returns the report of an evaluation, or None if TFMA has written the evaluation."""
    text = read_text(uri, REPORT_FILE)
    return None if text is None else TypeAdapter(GateReport).validate_python(json.loads(text))


class GateExecutor(base_executor.BaseExecutor):
    """Measures the new model and the model in service, and blesses the new model if it passes."""

    def Do(  # noqa: N802 - TFX's name
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Writes the report to `evaluation` and the decision to `blessing`.

        Raises:
          TrainingError: the measuring function does not exist, or does not return a metric that
            decides.
        """
        custom_config = json.loads(exec_properties[specs.CUSTOM_CONFIG_KEY])
        if examples := input_dict.get(specs.EXAMPLES_KEY):
            names = artifact_utils.decode_split_names(examples[0].split_names)
            custom_config[EXAMPLES_KEY] = {name: split_files(examples, name) for name in names}
        measure = load_own("the measure of the task's family", exec_properties[MEASURE_KEY])
        bounds = [Bounds(**fields) for fields in json.loads(exec_properties[BOUNDS_KEY])]
        confidence = json.loads(exec_properties[CONFIDENCE_KEY])
        (model,) = input_dict[specs.MODEL_KEY]
        models_in_service = input_dict.get(specs.BASELINE_MODEL_KEY)
        measured = _to_measured(measure(_model_folder(model), custom_config))
        in_service, notes = None, measured.notes
        if models_in_service:
            try:
                in_service = _to_measured(
                    measure(_model_folder(models_in_service[0]), custom_config)
                )
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
            f"evaluate: the details that the family's `measure` returns cannot be written as JSON:"
            f" {error}."
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
      input_dict: inputs with `model`, and with `baseline_model` if there is a model in service.
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
    blessed = (constants.BLESSED_FILE_NAME, constants.BLESSED_VALUE)
    not_blessed = (constants.NOT_BLESSED_FILE_NAME, constants.NOT_BLESSED_VALUE)
    file, value = blessed if is_good else not_blessed
    write_text("", blessing.uri, file)
    blessing.set_int_custom_property(constants.ARTIFACT_PROPERTY_BLESSED_KEY, value)


class GateSpec(component_spec.ComponentSpec):
    """The inputs, outputs and parameters of `GateEvaluator`, whose constructor explains them."""

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
    """Measures a model with a function of its family, and decides whether to bless the model."""

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
          baseline_model: a channel of Model with the model in service; the channel may be empty.
          measure: the import path of the measuring function. Its arguments are the folder of an
            exported model and the `custom_config`. It returns the values of metrics by name, or a
            `Measured`.
          examples: a channel of Examples, whose files `measure` may read.
        """
        spec = GateSpec(
            model=model,
            baseline_model=baseline_model,
            examples=examples,
            measure=measure,
            bounds=json.dumps([asdict(bound) for bound in bounds]),
            confidence=json.dumps(confidence),
            custom_config=json.dumps(custom_config),
            evaluation=Channel(type=standard_artifacts.ModelEvaluation),
            blessing=Channel(type=standard_artifacts.ModelBlessing),
        )
        super().__init__(spec=spec)
