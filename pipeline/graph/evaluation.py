"""Makes the configuration of the Evaluator from the config's metrics, thresholds and slices."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import tensorflow_model_analysis as tfma
import tf_keras
from tensorflow_model_analysis.constants import TF_GENERIC
from tensorflow_model_analysis.metrics import metric_specs, metric_types
from tensorflow_model_analysis.proto import config_pb2

from components.evaluator.batched.computations import Computations
from components.evaluator.constant_prediction import FORMULAS
from components.evaluator.dependence import Dependence
from components.evaluator.intervals import VerdictSettings
from pipeline.config.issues import near_match
from pipeline.config.sections.evaluate import NAME, Criteria, EvaluateSettings, Threshold, Ties
from trainer_module.errors import ConfigError
from trainer_module.export.saving import EVAL_LABEL, EVAL_LABEL_SIGNATURE, EVAL_SIGNATURE
from trainer_module.settings.tasks import Metric


def constant_metric(criteria: Criteria) -> str | None:
    """Returns the metric in which a model has to be better than a constant prediction.

    None if a threshold has `min` or `max`, which replace the comparison with a constant prediction.
    """
    thresholds = criteria.evaluate.thresholds.values()
    has_bound = any(
        threshold.min is not None or threshold.max is not None for threshold in thresholds
    )
    return None if has_bound else reference_metric(criteria)


def reference_metric(criteria: Criteria) -> str | None:
    """Returns the first deciding metric whose value for a constant prediction can be computed.

    The constant is computed from the unweighted raw labels. None if the metrics are weighted or a
    user's function transforms the labels, as their values cannot be compared with the constant's.
    """
    if criteria.weight or criteria.changes_labels:
        return None
    decide = criteria.evaluate.thresholds or criteria.names
    return next((name for name in criteria.names if name in decide and name in FORMULAS), None)


def make_eval_config(criteria: Criteria) -> config_pb2.EvalConfig:
    """Returns the TFMA configuration of the Evaluator."""
    _check_configured(criteria.evaluate)
    thresholds, slices = criteria.thresholds, _slicing_specs(criteria.evaluate)
    metrics = [
        _metric_config(name, _find(criteria, name), thresholds.get(name), slices)
        for name in [*criteria.names, *criteria.plots]
    ]
    return config_pb2.EvalConfig(
        model_specs=[
            config_pb2.ModelSpec(
                # TFMA calls only signatures, as it would load a Keras model a second time.
                model_type=TF_GENERIC,
                signature_name=EVAL_SIGNATURE,
                label_key=EVAL_LABEL,
                example_weight_key=criteria.weight or "",
                preprocessing_function_names=[EVAL_LABEL_SIGNATURE],
            )
        ],
        metrics_specs=_with_example_count(metrics, is_weighted=criteria.weight is not None),
        options=config_pb2.Options(include_default_metrics={"value": False}),
        slicing_specs=[config_pb2.SlicingSpec(), *slices],
    )


def make_measuring_config(criteria: Criteria) -> config_pb2.EvalConfig:
    """Returns the TFMA configuration of the Optimizer, which applies no thresholds."""
    eval_config = make_eval_config(criteria)
    for metric in (metric for spec in eval_config.metrics_specs for metric in spec.metrics):
        metric.ClearField("per_slice_thresholds")
    return eval_config


def _with_example_count(
    metrics: list[config_pb2.MetricConfig], is_weighted: bool
) -> list[config_pb2.MetricsSpec]:
    """Returns specs of the metrics and of the unweighted number of examples."""
    count = config_pb2.MetricConfig(class_name="ExampleCount")
    if not is_weighted:
        return [config_pb2.MetricsSpec(metrics=[count, *metrics])]
    unweighted = config_pb2.ExampleWeightOptions(unweighted=True)
    return [
        config_pb2.MetricsSpec(metrics=[count], example_weights=unweighted),
        config_pb2.MetricsSpec(metrics=metrics),
    ]


def _check_configured(evaluate: EvaluateSettings) -> None:
    """Raises ConfigError for a metric class that does not exist or rejects its arguments."""
    for index, settings in enumerate(evaluate.metrics):
        if isinstance(settings, str):
            continue
        options = json.dumps({NAME: settings.name, **settings.config})
        config = config_pb2.MetricConfig(
            class_name=settings.class_name, module=settings.module, config=options
        )
        try:
            metric_specs.metric_instance(config)
        except Exception as error:  # A class of the user's may raise any exception.
            class_names = {*metric_types.registered_metrics(), *dir(tf_keras.metrics)}
            is_unknown = not settings.module and settings.class_name not in class_names
            hint = f"; {near_match(settings.class_name, class_names)}" if is_unknown else ""
            raise ConfigError(
                f"evaluate.metrics.{index}: {settings.class_name} with config "
                f"{json.dumps(settings.config)} raises {type(error).__name__}: {error}{hint}"
            ) from error


def _find(criteria: Criteria, name: str) -> Metric:
    metric = criteria.metric(name)
    # TFMA searches its own metrics first, even if the config names another module.
    namesake = metric_types.registered_metrics().get(metric.class_name)
    if namesake and metric.module and not metric.module.startswith(tfma.__name__):
        raise ConfigError(
            f"evaluate.metrics: the class of {name} has the same name as TFMA's metric "
            f"{namesake.__module__}.{namesake.__qualname__}; rename your class."
        )
    return metric


def make_verdict(criteria: Criteria) -> VerdictSettings:
    """Returns the settings with which the Evaluator decides whether to bless a model.

    Raises:
      ConfigError: a threshold needs confidence intervals, which a metric prevents.
    """
    thresholds, ties = criteria.evaluate.thresholds.items(), criteria.evaluate.ties
    verdict = VerdictSettings(
        criteria.evaluate.confidence,
        lower=tuple(name for name, threshold in thresholds if threshold.is_min_confident),
        upper=tuple(name for name, threshold in thresholds if threshold.is_max_confident),
        dependence=Dependence(criteria.split_by or "", criteria.order_by or ""),
        others=criteria.others,
        deciding=criteria.deciding.name,
        keeps_ties=None if ties is None else ties is Ties.KEEP,
    )
    _check_confident([*verdict.lower, *verdict.upper], criteria)
    return verdict


def _check_confident(names: Sequence[str], criteria: Criteria) -> None:
    """Raises ConfigError if metrics need intervals, but stock TFMA has to evaluate without them."""
    if not names or Computations.of(config := make_eval_config(criteria)) is not None:
        return
    preventing = []
    for metric in (metric for spec in config.metrics_specs for metric in spec.metrics):
        alone = config_pb2.EvalConfig(model_specs=config.model_specs)
        alone.metrics_specs.add(metrics=[metric])
        if Computations.of(alone) is None:
            preventing.append(metric.class_name)
    raise ConfigError(
        f"evaluate.thresholds.{names[0]}: found a bound to be met for certain; expected no metric "
        f"without confidence intervals beside it, such as {', '.join(preventing or criteria.names)}"
    )


def _slicing_specs(evaluate: EvaluateSettings) -> list[config_pb2.SlicingSpec]:
    return [config_pb2.SlicingSpec(feature_keys=keys) for keys in evaluate.slices]


def _metric_config(
    name: str,
    metric: Metric,
    threshold: Threshold | None,
    slices: list[config_pb2.SlicingSpec],
) -> config_pb2.MetricConfig:
    # Plots keep their default names, by which TFMA's views find them.
    options = json.dumps({**({NAME: name} if metric.is_number else {}), **metric.options})
    config = config_pb2.MetricConfig(
        class_name=metric.class_name, module=metric.module, config=options[1:-1]
    )
    if threshold is None:
        return config
    # Both bounds are set, as a NaN fails a bound but passes if the bound is missing.
    largest = sys.float_info.max
    bounds = config_pb2.GenericValueThreshold(
        lower_bound={"value": -largest if threshold.min_value is None else threshold.min_value},
        upper_bound={"value": largest if threshold.max_value is None else threshold.max_value},
    )
    if metric.higher_is_better:
        direction, worst = config_pb2.MetricDirection.HIGHER_IS_BETTER, -threshold.tolerance
    else:
        direction, worst = config_pb2.MetricDirection.LOWER_IS_BETTER, threshold.tolerance
    metric_threshold = config_pb2.MetricThreshold(value_threshold=bounds)
    if metric.is_compared:
        change = config_pb2.GenericChangeThreshold(direction=direction, absolute={"value": worst})
        metric_threshold.change_threshold.CopyFrom(change)
    # The empty slicing spec is the whole split; without it, TFMA would check every slice.
    specs = [config_pb2.SlicingSpec(), *(slices if threshold.slices else ())]
    config.per_slice_thresholds.add(slicing_specs=specs, threshold=metric_threshold)
    return config
