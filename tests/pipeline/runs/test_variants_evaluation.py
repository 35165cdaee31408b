"""Variants evaluated in the place of their model: equal ones, and ones that are broken."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import apache_beam as beam
import pytest
import tensorflow as tf
from apache_beam.options.pipeline_options import PipelineOptions
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.types import Artifact

from components.beam_workers.options import IN_PROCESS_ARGS
from components.optimizer.evaluating import Evaluation, evaluate, read_model_metrics
from components.optimizer.gating import VariantMetrics
from pipeline.graph.evaluation import make_measuring_config
from tests.support.evaluation_artifacts import (
    PLANS,
    ROWS,
    SURE,
    config_of,
    measure,
    write_examples,
    write_model,
)
from trainer_module.export.saving import (
    EVAL_LABEL_SIGNATURE,
    EVAL_SIGNATURE,
    TRANSFORM_SIGNATURE,
)
from trainer_module.export.variants.manifest import (
    Variant,
    VariantTensor,
    describe_file,
    write_variant,
)

pytestmark = pytest.mark.slow

CONFIG = config_of({"metrics": ["accuracy", "log_loss"], "slices": ["plan"]})


SURELY = (1e-7, 1 - 1e-7)
"""Between what the task of two classes has its predictions measured."""


@dataclass(frozen=True)
class Found:
    """What was found of the model and its variants, and why others could not be measured."""

    model: VariantMetrics
    variants: dict[str, VariantMetrics]
    failed: dict[str, str]


def with_transform(model: Artifact) -> str:
    """The SavedModel once more, with the signature that gives transformed features."""
    path = Path(model.uri, "Format-Serving")
    module = tf.Module()
    module.model = tf.saved_model.load(str(path))

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string, "examples")])
    def transform(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        return tf.io.parse_example(examples, {"score": tf.io.FixedLenFeature([1], tf.float32)})

    kept = {n: module.model.signatures[n] for n in (EVAL_SIGNATURE, EVAL_LABEL_SIGNATURE)}
    whole = path.with_name("whole")
    tf.saved_model.save(module, str(whole), {**kept, TRANSFORM_SIGNATURE: transform})
    return str(whole)


def write_factor(folder: Path, factor: float) -> Path:
    """A variant that multiplies the score by a number."""

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None, 1], tf.float32, "score")])
    def predict(score: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"predictions": score * factor}

    module = tf.Module()
    module.predict = predict
    exported = str(folder / "exported")
    tf.saved_model.save(module, exported, {"serving_default": predict})
    converter = tf.lite.TFLiteConverter.from_saved_model(exported)
    (folder / "model.tflite").write_bytes(converter.convert())
    variant = Variant(
        name=folder.name,
        format="litert",
        precision="float",
        **describe_file(folder / "model.tflite"),
        inputs=(VariantTensor("score", "score", "float32", (None, 1)),),
        outputs=(VariantTensor("predictions", "predictions", "float32", (None, 1)),),
        task="binary",
        bounds=SURELY,
        classes=("0", "1"),
        runtime="ai-edge-litert",
        runtime_version="",
        how_to_load="",
    )
    write_variant(variant, folder)
    return folder


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    folder = tmp_path_factory.mktemp("variants")
    examples, model = write_examples(folder, score=SURE), write_model(folder, "score")
    measured = measure(folder / "evaluator", CONFIG, examples, model)
    schema = text_format.Parse(
        (folder / "evaluator" / "schema" / "schema.pbtxt").read_text(), schema_pb2.Schema()
    )
    evaluation = Evaluation(
        with_transform(model),
        [examples],
        "eval",
        schema,
        make_measuring_config(CONFIG.criteria),
        lambda: beam.Pipeline(options=PipelineOptions(list(IN_PROCESS_ARGS))),
    )
    factors = {"same": 1.0, "half": 0.5, "nan": math.nan, "corrupt": 1.0}
    variants = {name: write_factor(folder / name, factor) for name, factor in factors.items()}
    (folder / "corrupt" / "model.tflite").write_bytes(b"no model")
    return Found(read_model_metrics(measured.uri), *evaluate(evaluation, variants))


def test_a_variant_that_is_equal_has_the_metrics_of_its_model(found: Found) -> None:
    same = found.variants["same"]
    assert same.metrics == pytest.approx(found.model.metrics)
    assert same.metrics["example_count"] == ROWS
    assert same.slices.keys() == found.model.slices.keys() == {f"plan={plan}" for plan in PLANS}
    for name, metrics in same.slices.items():
        assert metrics == pytest.approx(found.model.slices[name])


def test_a_variant_that_is_worse_has_metrics_of_its_own(found: Found) -> None:
    assert found.model.metrics["accuracy"] == 1.0
    assert found.variants["half"].metrics["accuracy"] < 0.6


def test_variants_that_are_broken_are_named_and_the_others_measured(found: Found) -> None:
    assert found.variants.keys() == {"same", "half"}
    assert found.failed["nan"] == (
        "output 'predictions' of the variant has NaN or infinite values for rows of the eval split"
    )
    assert "model.tflite is damaged: its sha256 is" in found.failed["corrupt"]
