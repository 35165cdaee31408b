"""Evaluates variants as Evaluator does the model: the same rows, labels, metrics and slices.

TFMA is told of a model whose signatures parse and transform as the exported one does, and ask a
variant for the rest.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow as tf
import tensorflow_model_analysis as tfma
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_model_analysis.constants import ARROW_INPUT_COLUMN, TF_GENERIC
from tfx import types
from tfx.components.util import tfxio_utils
from tfx.types import artifact_utils
from tfx.utils import io_utils
from tfx_bsl.tfxio import tensor_adapter

from components.evaluator.slices import CANDIDATE, metrics_by_slice
from components.optimizer.gating import Evaluated
from components.user_errors import find_user_error
from trainer_module.errors import DataError
from trainer_module.export import EVAL_LABEL_SIGNATURE, EVAL_SIGNATURE, TRANSFORM_SIGNATURE
from trainer_module.variants.running import RunnableVariant, open_variant

LONGEST_REASON = 300
"""Characters of an error that are enough to see what is wrong with a variant."""

MakePipeline = Callable[[], beam.Pipeline]


@dataclass(frozen=True)
class Evaluation:
    """What variants are evaluated on, and by what."""

    saved_model: str
    """The exported model, which they are variants of."""
    examples: Sequence[types.Artifact]
    """As they are read."""
    split: str
    schema: schema_pb2.Schema
    eval_config: tfma.EvalConfig
    make_pipeline: MakePipeline


def evaluate(
    evaluation: Evaluation, variants: Mapping[str, Path]
) -> tuple[dict[str, Evaluated], dict[str, str]]:
    """Measures all variants in one pass over the examples, or each in its own if one fails.

    Args:
      evaluation: what to measure, on what.
      variants: their folders, by name.

    Returns:
      What was measured, by name; and why the others could not be.
    """
    if not variants:
        return {}, {}
    try:
        return _run(evaluation, variants), {}
    except Exception as error:  # Beam and runtimes raise what they like.
        if len(variants) == 1:
            return {}, dict.fromkeys(variants, _reason(error))
    found: dict[str, Evaluated] = {}
    failed: dict[str, str] = {}
    for name, folder in variants.items():
        try:
            found |= _run(evaluation, {name: folder})
        except Exception as error:
            failed[name] = _reason(error)
    return found, failed


def read_evaluated(uri: str) -> Evaluated:
    """What Evaluator has measured of the model.

    Args:
      uri: the folder of its evaluation.
    """
    return _evaluated(uri, CANDIDATE)


def _evaluated(uri: str, model: str) -> Evaluated:
    slices = {name: models.get(model, {}) for name, models in metrics_by_slice(uri).items()}
    return Evaluated(slices.pop("", {}), slices)


def _reason(error: BaseException) -> str:
    known = find_user_error(error)
    said = str(known) if known is not None else f"it cannot be evaluated: {error}"
    return " ".join(said.split())[:LONGEST_REASON]


def _run(evaluation: Evaluation, variants: Mapping[str, Path]) -> dict[str, Evaluated]:
    with tempfile.TemporaryDirectory(prefix="scopeline-") as output:
        _measure(evaluation, variants, output)
        names = list(variants)
        return {n: _evaluated(output, n if len(names) > 1 else CANDIDATE) for n in names}


def _measure(evaluation: Evaluation, variants: Mapping[str, Path], output: str) -> None:
    """Has TFMA write what it finds to a folder."""
    config = config_of(evaluation.eval_config, list(variants))
    shared = shared_models(evaluation.saved_model, variants)
    factory = tfxio_utils.get_tfxio_factory_from_artifact(
        examples=list(evaluation.examples),
        telemetry_descriptors=["Optimizer"],
        schema=evaluation.schema,
        raw_record_column_name=ARROW_INPUT_COLUMN,
    )
    uris = artifact_utils.get_split_uris(list(evaluation.examples), evaluation.split)
    sources = [factory(io_utils.all_files_pattern(uri)) for uri in uris]
    adapter = tensor_adapter.TensorAdapterConfig(
        arrow_schema=sources[-1].ArrowSchema(),
        tensor_representations=sources[-1].TensorRepresentations(),
    )
    with evaluation.make_pipeline() as pipeline:
        batches = [
            pipeline | f"Read[{number}]" >> source.BeamSource()
            for number, source in enumerate(sources)
        ]
        _ = (
            batches
            | "Flatten" >> beam.Flatten(pipeline=pipeline)
            | "Evaluate"
            >> tfma.ExtractEvaluateAndWriteResults(
                eval_shared_model=shared,
                eval_config=config,
                output_path=output,
                tensor_adapter_config=adapter,
            )
        )


def shared_models(saved_model: str, variants: Mapping[str, Path]) -> Any:
    """What TFMA asks in place of the model, whose config is that of `config_of`.

    Args:
      saved_model: the exported model, which they are variants of.
      variants: their folders, by name.
    """
    folders = {name: str(folder) for name, folder in variants.items()}
    # One for all, so that the exported model is loaded once.
    loader = tfma.types.ModelLoader(lambda: _make_model(saved_model, folders))
    shared = [
        tfma.types.EvalSharedModel(
            model_path=saved_model, model_name=name, model_type=TF_GENERIC, model_loader=loader
        )
        for name in variants
    ]
    return shared if len(shared) > 1 else shared[0]


def config_of(eval_config: tfma.EvalConfig, names: Sequence[str]) -> tfma.EvalConfig:
    """TFMA's config of the model, for variants of it."""
    config = tfma.EvalConfig()
    config.CopyFrom(eval_config)
    (model,) = eval_config.model_specs
    del config.model_specs[:]
    for name in names:
        spec = config.model_specs.add()
        spec.CopyFrom(model)
        spec.signature_name = _signature(name)
        spec.name = name if len(names) > 1 else ""
    return config


def _signature(name: str) -> str:
    return f"{EVAL_SIGNATURE}_{name}"


def _make_model(saved_model: str, folders: Mapping[str, str]) -> tf.Module:
    """The model that TFMA asks: the exported one's label, and an answer for each variant."""
    module = tf.Module()
    module.exported = _load(saved_model)
    module.signatures = {EVAL_LABEL_SIGNATURE: module.exported.signatures[EVAL_LABEL_SIGNATURE]}
    for name, folder in folders.items():
        asked = _make_signature(module.exported, open_variant(Path(folder)))
        module.signatures[_signature(name)] = asked
    return module


def _load(saved_model: str) -> Any:
    try:
        return tf.saved_model.load(saved_model)
    except (tf.errors.NotFoundError, FileNotFoundError) as error:
        if "Op type not registered" not in str(error):
            raise
        # Registers the operations by which BERT cuts words.
        import tensorflow_text  # noqa: F401

        return tf.saved_model.load(saved_model)


def _make_signature(exported: Any, runnable: RunnableVariant) -> Any:
    """From serialised examples to what the signature `eval` gives, by way of a variant."""
    names = [tensor.name for tensor in runnable.variant.inputs]
    specs = exported.signatures[EVAL_SIGNATURE].structured_outputs
    outputs = list(specs)
    transform = exported.signatures[TRANSFORM_SIGNATURE]

    def ask(*values: np.ndarray) -> list[np.ndarray]:
        found = runnable.predict(dict(zip(names, values, strict=True)))
        for name in outputs:
            if not np.isfinite(found[name]).all():
                raise DataError(f"it gives NaN or infinity as {name!r}, on the eval split")
        return [found[name].astype(specs[name].dtype.as_numpy_dtype) for name in outputs]

    @tf.function(
        autograph=False, input_signature=[tf.TensorSpec([None], tf.string, name="examples")]
    )
    def evaluate_variant(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        transformed = transform(examples=examples)
        values = tf.numpy_function(
            ask, [transformed[name] for name in names], [specs[name].dtype for name in outputs]
        )
        for name, value in zip(outputs, values, strict=True):
            value.set_shape(specs[name].shape)
        return dict(zip(outputs, values, strict=True))

    return evaluate_variant.get_concrete_function()
