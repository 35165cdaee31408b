"""The Evaluator component: TFX's own Evaluator with the executor and settings of this package."""

from __future__ import annotations

import json
from collections.abc import Sequence

import tensorflow_model_analysis as tfma
from tfx.components.evaluator.component import Evaluator as TfxEvaluator
from tfx.dsl.components.base import executor_spec
from tfx.types import BaseChannel, Channel, standard_artifacts, standard_component_specs
from tfx.types.component_spec import ChannelParameter
from tfx.utils import json_utils

from components.evaluator.executor import (
    CONSTANT_KEY,
    EXPLAIN_KEY,
    NAIVE_KEY,
    VERDICT_KEY,
    WARM_START_KEY,
    Executor,
)
from components.evaluator.intervals import (
    BASELINE_EXAMPLES_KEY,
    TRAINING_EXAMPLES_KEY,
    VerdictSettings,
)
from trainer_module.settings import Task


class EvaluatorSpec(standard_component_specs.EvaluatorSpec):
    """The spec of TFX's Evaluator, with additional inputs: the training examples of both models."""

    INPUTS = standard_component_specs.EvaluatorSpec.INPUTS | {
        key: ChannelParameter(type=standard_artifacts.Examples, optional=True)
        for key in (BASELINE_EXAMPLES_KEY, TRAINING_EXAMPLES_KEY)
    }


class Evaluator(TfxEvaluator):
    """Measures a model, compares it with the model in service, and decides whether to bless it."""

    SPEC_CLASS = EvaluatorSpec
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)

    def __init__(
        self,
        examples: BaseChannel,
        model: BaseChannel,
        baseline_model: BaseChannel,
        baseline_examples: BaseChannel | None,
        training_examples: BaseChannel,
        warm_start: bool,
        eval_config: tfma.EvalConfig,
        schema: BaseChannel,
        label: str,
        task: Task,
        split: str,
        constant_metric: str | None,
        constant_decides: bool,
        past_labels: Sequence[str],
        verdict: VerdictSettings,
        explains: bool,
    ) -> None:
        """Constructs the TFX component.

        Args:
          examples: a channel of Examples with the split to measure on.
          model: a channel of Model with the new model.
          baseline_model: a channel of Model with the model in service; the channel may be empty.
          baseline_examples: a channel of the raw Examples that `baseline_model` was trained on, or
            None if these Examples are unknown.
          training_examples: a channel of the raw Examples that `model` was trained on.
          warm_start: whether training begins with the weights of the model in service.
          constant_metric: the metric in which the model is compared with the best constant
            prediction, or None if there is no formula for a constant prediction.
          constant_decides: whether the model has to beat the constant prediction.
          past_labels: the columns of past labels, the best of which is the naive prediction.
          explains: whether the model is explained after its evaluation.
        """
        spec = EvaluatorSpec(
            examples=examples,
            model=model,
            baseline_model=baseline_model,
            baseline_examples=baseline_examples,
            training_examples=training_examples,
            eval_config=eval_config,
            schema=schema,
            example_splits=json_utils.dumps([split]),
            fairness_indicator_thresholds=json_utils.dumps(None),
            evaluation=Channel(type=standard_artifacts.ModelEvaluation),
            blessing=Channel(type=standard_artifacts.ModelBlessing),
        )
        # TFX's own constructor makes a spec without channels for training examples.
        super(TfxEvaluator, self).__init__(spec=spec)
        # These properties are not parameters of TFX's own spec.
        self.exec_properties[VERDICT_KEY] = verdict.to_json()
        self.exec_properties[WARM_START_KEY] = int(warm_start)
        self.exec_properties[EXPLAIN_KEY] = int(explains)
        if constant_metric is not None:
            constant_settings = {
                "decides": constant_decides,
                "metric": constant_metric,
                "label": label,
                "task": task.value,
            }
            self.exec_properties[CONSTANT_KEY] = json.dumps(constant_settings)
        if past_labels:
            naive = {"label": label, "columns": list(past_labels)}
            self.exec_properties[NAIVE_KEY] = json.dumps(naive)
