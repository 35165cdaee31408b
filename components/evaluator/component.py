"""The TFX component: stock's, with an executor that asks more of a model."""

from __future__ import annotations

import json

import tensorflow_model_analysis as tfma
from tfx.components.evaluator.component import Evaluator as StockEvaluator
from tfx.dsl.components.base import executor_spec
from tfx.types import BaseChannel

from components.evaluator.batched.executor import VERDICT_KEY
from components.evaluator.executor import CONSTANT_KEY, Executor
from components.evaluator.verdict_settings import VerdictSettings
from trainer_module.settings import Task


class Evaluator(StockEvaluator):
    """Measures a model, beside the one in service, and decides whether it is good enough."""

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)

    def __init__(
        self,
        examples: BaseChannel,
        model: BaseChannel,
        baseline_model: BaseChannel,
        eval_config: tfma.EvalConfig,
        schema: BaseChannel,
        label: str,
        task: Task,
        split: str,
        constant_metric: str | None,
        constant_decides: bool,
        verdict: VerdictSettings,
    ) -> None:
        """Constructs the component.

        Args:
          examples: a channel of Examples.
          model: a channel of Model: the one to measure.
          baseline_model: a channel of Model: the one to beat, if there is one.
          eval_config: what TFMA is told.
          schema: a channel of Schema.
          label: the label's raw column.
          task: what is predicted.
          split: the split that is measured on.
          constant_metric: the metric, among those with a threshold, of which a constant
            prediction's is looked at; None if it is not known of any.
          constant_decides: whether the model must be better than that.
          verdict: what the verdict makes of chance.
        """
        super().__init__(
            examples=examples,
            model=model,
            baseline_model=baseline_model,
            eval_config=eval_config,
            schema=schema,
            example_splits=[split],
        )
        # Beside the spec's parameters, which are stock's.
        self.exec_properties[VERDICT_KEY] = verdict.to_json()
        if constant_metric is not None:
            named = {
                "decides": constant_decides,
                "metric": constant_metric,
                "label": label,
                "task": task.value,
            }
            self.exec_properties[CONSTANT_KEY] = json.dumps(named)
