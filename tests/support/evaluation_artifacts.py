"""Evaluation artifacts as TFX's Evaluator writes them, of models whose scores are in the data."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf import json_format
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.types import Artifact, artifact_utils, standard_artifacts

from components.beam_workers.options import IN_PROCESS_ARGS
from components.evaluator.executor import CONSTANT_KEY, VERDICT_KEY, Executor
from pipeline.config.settings import PipelineConfig
from pipeline.graph.evaluation import (
    constant_metric,
    make_eval_config,
    make_verdict,
    reference_metric,
)
from trainer_module.export.saving import (
    EVAL_LABEL,
    EVAL_LABEL_SIGNATURE,
    EVAL_SIGNATURE,
    EXAMPLES,
)
from trainer_module.settings.tasks import BaseTask, as_task

ROWS = 24
"""Half of them are labelled 1, and half are in each zone."""
PLANS = ("gold", "free", "café")
HALF = ROWS // 2
SURE = [0.0] + [0.1] * (HALF - 1) + [0.9] * (HALF - 1) + [1.0]
"""Every row is right, and one of each class is so for certain."""


@dataclass(frozen=True)
class Measured:
    """An evaluation artifact, with the config that it was made by and the verdict."""

    uri: str
    config: PipelineConfig
    blessed: bool


@dataclass(frozen=True)
class Evaluations:
    """What came of three evaluations."""

    missed: Measured
    """A bad candidate against a good baseline: every way to miss a threshold, and a kept one."""
    kept: Measured
    """The good one against the bad one."""
    first: Measured
    """A good one without thresholds, and without another to compare with."""
    useless: Measured
    """The same of the bad one, which always predicts the same."""


def config_of(evaluate: dict[str, Any], **sections: Any) -> PipelineConfig:
    """A config whose data is never looked at."""
    return PipelineConfig.model_validate(
        {
            "name": "measured",
            "data": {"format": "csv", "path": "nowhere.csv", "label": "label"},
            "task": "binary",
            "evaluate": evaluate,
            **sections,
        }
    )


def write_examples(folder: Path, **scores: Sequence[float]) -> Artifact:
    """Rows of which the last half is positive, with the scores that models give them."""
    path = folder / "examples" / "Split-eval" / "data.gz"
    path.parent.mkdir(parents=True)
    with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
        for row in range(ROWS):
            example = tf.train.Example()
            feature = example.features.feature
            feature["label"].int64_list.value.append(int(row >= ROWS // 2))
            feature["plan"].bytes_list.value.append(PLANS[row % len(PLANS)].encode())
            feature["zone"].int64_list.value.append(row % 2)
            for name, values in scores.items():
                feature[name].float_list.value.append(values[row])
            writer.write(example.SerializeToString())
    examples = _artifact(standard_artifacts.Examples, folder / "examples")
    examples.split_names = artifact_utils.encode_split_names(["eval"])
    return examples


def write_model(folder: Path, scores: str, *more: str, task: BaseTask | str = "binary") -> Artifact:
    """A SavedModel with our signatures for evaluation; its scores are columns of the data."""
    module = tf.Module()
    spec = {name: tf.io.FixedLenFeature([1], tf.float32) for name in (scores, *more)}
    label = {"label": tf.io.FixedLenFeature([1], tf.int64)}

    @tf.function(autograph=False)
    def evaluate(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        found = tf.io.parse_example(examples, spec)
        return as_task(task).measured(tf.concat([found[name] for name in spec], 1))

    @tf.function(autograph=False)
    def eval_label(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        return {EVAL_LABEL: tf.io.parse_example(examples, label)["label"]}

    examples = tf.TensorSpec([None], tf.string, name=EXAMPLES)
    signatures = {
        EVAL_SIGNATURE: evaluate.get_concrete_function(examples),
        EVAL_LABEL_SIGNATURE: eval_label.get_concrete_function(examples),
    }
    tf.saved_model.save(module, str(folder / scores / "Format-Serving"), signatures)
    return _artifact(standard_artifacts.Model, folder / scores)


def measure(
    folder: Path,
    config: PipelineConfig,
    examples: Artifact,
    candidate: Artifact,
    baseline: Artifact | None = None,
    **learnt: list[Artifact],
) -> Measured:
    """Runs TFX's Evaluator as a pipeline of the config does.

    Args:
      folder: for what it leaves.
      config: says what is measured.
      examples: of the evaluation.
      candidate: the new model.
      baseline: the model in service, if there is one.
      **learnt: `baseline_examples` and `training_examples`, what both have learnt from.
    """
    folder.mkdir(parents=True)
    context = BaseBeamExecutor.Context(
        beam_pipeline_args=list(IN_PROCESS_ARGS), tmp_dir=str(folder / "tmp"), unique_id="1"
    )
    schema = _artifact(standard_artifacts.Schema, folder / "schema")
    Path(schema.uri).mkdir()
    columns = {"label": "INT", "plan": "BYTES", "zone": "INT"}
    features = (f'feature {{ name: "{name}" type: {kind} }}' for name, kind in columns.items())
    Path(schema.uri, "schema.pbtxt").write_text("\n".join(features))
    inputs = {"examples": [examples], "model": [candidate], "schema": [schema], **learnt}
    if baseline is not None:
        inputs["baseline_model"] = [baseline]
    evaluation = _artifact(standard_artifacts.ModelEvaluation, folder / "evaluation")
    blessing = _artifact(standard_artifacts.ModelBlessing, folder / "blessing")
    with warnings.catch_warnings():
        # TFMA divides by zero where a model calls no row positive.
        warnings.simplefilter("ignore", RuntimeWarning)
        Executor(context).Do(
            inputs,
            {"evaluation": [evaluation], "blessing": [blessing]},
            {
                "eval_config": json_format.MessageToJson(make_eval_config(config.criteria)),
                CONSTANT_KEY: _constant(config),
                VERDICT_KEY: make_verdict(config.criteria).to_json(),
            },
        )
    return Measured(evaluation.uri, config, bool(blessing.get_int_custom_property("blessed")))


def _constant(config: PipelineConfig) -> str:
    metric, decides = (
        reference_metric(config.criteria),
        constant_metric(config.criteria) is not None,
    )
    named = {"metric": metric, "label": "label", "task": config.task.value}
    return json.dumps(named | {"decides": decides}) if metric else ""


def _artifact(kind: type[Artifact], path: Path) -> Artifact:
    artifact = kind()
    artifact.uri = str(path)
    return artifact
