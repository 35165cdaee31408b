"""The evaluation of variants on the rows of the model's evaluation, and their latency."""

from __future__ import annotations

import functools
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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

from components.evaluator.batched.pipeline import evaluate_if_possible
from components.evaluator.batched.reading import make_variant_module
from components.evaluator.slices import CANDIDATE, metrics_by_slice
from components.optimizer.converting.exported import load_numeric_model
from components.optimizer.gating import ModelMeasurements, VariantMetrics, latency_of
from components.processes.stopping import check_stop
from components.split_files import split_files
from components.user_errors import find_user_error
from trainer_module.errors import DataError, enumerate_names, shorten
from trainer_module.export.loading import load_exported
from trainer_module.export.variants.manifest import Variant, write_variant
from trainer_module.export.variants.measuring import measure, measure_in_process, save_sample
from trainer_module.scratch import ScratchFolder

logger = logging.getLogger(__name__)

FLOAT_BYTES = 4


def unmeasured_reason(variant: Variant) -> str:
    """Returns the reason why a variant was not measured on its target device, or an empty
    string.
    """
    if not variant.provider or latency_of(variant.measured) is not None:
        return ""
    return f"unmeasured on a GPU ({enumerate_names(variant.provider, 'and')} does not run here)"


def measure_model(saved_model: Path, sample: Mapping[str, np.ndarray]) -> ModelMeasurements:
    """Measures the model itself: the size of its weights, and the latency of `from_transformed`.

    Raises:
      TrainingError: the model was not exported by this project's export.
    """
    model = load_numeric_model(saved_model)
    weights = sum(int(np.prod(v.shape)) for v in model.function.graph.variables)
    measured = measure(model.predict, sample)
    return ModelMeasurements(weights * FLOAT_BYTES, measured)


def measure_variants(
    variants: Mapping[str, Variant], folder: Path, sample: Mapping[str, np.ndarray]
) -> dict[str, Variant]:
    """Returns the variants with their measurements.

    Each variant without measurements is measured in a process that loads only the variant's
    runtime.

    Args:
      folder: the folder of the variants; the measurements are written to their manifests.
    """
    measured = dict(variants)
    with ScratchFolder() as temporary:
        sample_file = Path(temporary, "sample.npz")
        save_sample(sample, sample_file)
        for name, variant in variants.items():
            check_stop()
            if latency_of(variant.measured) is None:
                figures = _measure_variant(variant, folder / name, sample_file)
                measured[name] = replace(variant, measured={**variant.measured, **figures})
                write_variant(measured[name], folder / name)
    return measured


def _measure_variant(variant: Variant, folder: Path, sample: Path) -> dict[str, Any]:
    """Returns the measurements of a variant, or {} if the variant does not run on this machine.

    A variant for a GPU is measured only with its provider, because a CPU's latency says nothing
    about a GPU's.
    """
    providers = tuple(variant.provider)
    try:
        with ScratchFolder() as temporary:
            # Engines are built in a copy of the folder, because they only run on this type of GPU.
            measured_folder = (
                shutil.copytree(folder, Path(temporary, folder.name)) if providers else folder
            )
            figures = measure_in_process(measured_folder, sample, providers=providers)
    except DataError:
        logger.warning("Variant %s cannot be measured", folder.name, exc_info=True)
        return {}
    return {**figures, "providers": providers} if providers else figures


MakePipeline = Callable[[], beam.Pipeline]


@dataclass(frozen=True)
class Evaluation:
    """The model, the examples, the split and TFMA's config of an evaluation of variants."""

    saved_model: str
    examples: Sequence[types.Artifact]
    split: str
    schema: schema_pb2.Schema
    eval_config: tfma.EvalConfig
    make_pipeline: MakePipeline


def evaluate(
    evaluation: Evaluation, variants: Mapping[str, Path]
) -> tuple[dict[str, VariantMetrics], dict[str, str]]:
    """Evaluates all variants in one pass over the examples. If the pass fails, one by one.

    Returns:
      The metrics by the name of the variant, and the reasons of failed evaluations by name.
    """
    if not variants:
        return {}, {}
    try:
        return _run(evaluation, variants), {}
    except Exception as error:  # Beam and runtimes raise errors of any type.
        if len(variants) == 1:
            return {}, dict.fromkeys(variants, _reason(error))
    metrics: dict[str, VariantMetrics] = {}
    failed: dict[str, str] = {}
    for name, folder in variants.items():
        try:
            metrics |= _run(evaluation, {name: folder})
        except Exception as error:
            failed[name] = _reason(error)
    return metrics, failed


def read_model_metrics(uri: str) -> VariantMetrics:
    """Returns the metrics of the model itself, which the Evaluator has measured."""
    return _read_metrics(uri, CANDIDATE)


def _read_metrics(uri: str, model: str) -> VariantMetrics:
    slices = {name: models.get(model, {}) for name, models in metrics_by_slice(uri).items()}
    return VariantMetrics(slices.pop("", {}), slices)


def _reason(error: BaseException) -> str:
    user_error = find_user_error(error)
    return str(user_error) if user_error is not None else f"the evaluation failed: {shorten(error)}"


def _run(evaluation: Evaluation, variants: Mapping[str, Path]) -> dict[str, VariantMetrics]:
    with ScratchFolder() as output:
        _measure(evaluation, variants, output)
        names = list(variants)
        return {
            name: _read_metrics(output, name if len(names) > 1 else CANDIDATE) for name in names
        }


def _measure(evaluation: Evaluation, variants: Mapping[str, Path], output: str) -> None:
    """Writes TFMA's results into a folder: in batches if possible, otherwise by TFMA."""
    config = make_config(evaluation.eval_config, list(variants))
    names = {name: name if len(variants) > 1 else "" for name in variants}
    is_done = evaluate_if_possible(
        evaluation.make_pipeline,
        split_files(evaluation.examples, evaluation.split),
        config,
        evaluation.schema,
        {names[name]: evaluation.saved_model for name in variants},
        output,
        variants={names[name]: str(folder) for name, folder in variants.items()},
    )
    if not is_done:
        _measure_by_tfma(evaluation, variants, config, output)


def _measure_by_tfma(
    evaluation: Evaluation, variants: Mapping[str, Path], config: tfma.EvalConfig, output: str
) -> None:
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
    """Returns the variants as models for TFMA, by the names in the config of `make_config`."""
    shared = [
        tfma.types.EvalSharedModel(
            model_path=saved_model,
            model_name=name,
            model_type=TF_GENERIC,
            model_loader=tfma.types.ModelLoader(
                functools.partial(_load_variant, saved_model, str(folder))
            ),
        )
        for name, folder in variants.items()
    ]
    return shared if len(shared) > 1 else shared[0]


def make_config(eval_config: tfma.EvalConfig, names: Sequence[str]) -> tfma.EvalConfig:
    """Returns TFMA's config for variants, from TFMA's config for their model."""
    config = tfma.EvalConfig()
    config.CopyFrom(eval_config)
    (model,) = eval_config.model_specs
    del config.model_specs[:]
    for name in names:
        spec = config.model_specs.add()
        spec.CopyFrom(model)
        spec.name = name if len(names) > 1 else ""
    return tfma.utils.update_eval_config_with_defaults(
        config, has_baseline=False, rubber_stamp=True
    )


def _load_variant(saved_model: str, folder: str) -> tf.Module:
    return make_variant_module(load_exported(saved_model), folder)
