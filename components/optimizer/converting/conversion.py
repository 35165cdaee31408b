"""The conversion of an exported model to a variant with a manifest, in a child process."""

from __future__ import annotations

import importlib
import logging
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import tf_keras

from components.optimizer.converting.exported import (
    Arrays,
    ConvertedFile,
    NumericModel,
    load_numeric_model,
)
from components.processes.failures import WorkerFailedError
from components.processes.launcher import Place, WorkerSpec
from components.processes.local.launcher import run_one
from components.processes.worker import Channel
from trainer_module.errors import TrainingError, counted, shorten
from trainer_module.export.variants.manifest import (
    Variant,
    describe_file,
    hash_file,
    read_variant,
    write_variant,
)
from trainer_module.export.variants.measuring import load_sample, save_sample
from trainer_module.export.variants.running import RUNTIMES, open_variant
from trainer_module.scratch import ScratchFolder

MODULE = "components.optimizer.converting.conversion"
_ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}
"""The environment of the child process: it hides GPUs, whose memory converters must not use."""

KINDS: Mapping[str, tuple[str, str]] = {
    **{
        precision: ("litert", precision)
        for precision in ("float", "float16", "dynamic", "int8", "int16x8")
    },
    "onnx": ("onnx", "float"),
    "onnx_float16": ("onnx", "float16"),
    "onnx_int8": ("onnx", "int8"),
    "tensorrt_float16": ("tensorrt", "float16"),
    "tensorrt_int8": ("tensorrt", "int8"),
}
"""The module of this package and the precision, by the variant's name in the config."""
SECONDS = 3600.0
"""The time limit of a conversion, in seconds."""


def convert_in_child(
    name: str, saved_model: Path, sample: Mapping[str, np.ndarray], folder: Path
) -> Variant:
    """Converts a variant in a child process. The folder is complete or does not exist.

    Args:
      sample: transformed examples of the train split, [rows, ...] by feature.
      folder: the folder for the variant; an existing folder is replaced.

    Raises:
      TrainingError: the conversion has failed; the message contains the error of the converter, or
        how the process ended.
    """
    scratch = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        with ScratchFolder() as temporary:
            sample_file = Path(temporary, "sample.npz")
            save_sample(sample, sample_file)
            payload = {
                "name": name,
                "saved_model": str(saved_model),
                "sample": str(sample_file),
                "folder": str(scratch),
            }
            place = Place("worker", 0, label=f"the conversion to {name}")
            run_one(WorkerSpec(place, MODULE, payload, _ENVIRONMENT, SECONDS))
        variant = read_variant(scratch)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(scratch, folder)
    except WorkerFailedError as error:
        raise TrainingError(f"{error}; the run's log has the converter's output.") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return variant


def main(payload: dict[str, Any], channel: Channel) -> None:
    """Converts a model in the child process; `convert_in_child` creates the payload."""
    del channel
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    sample = load_sample(Path(payload["sample"]))
    convert(payload["name"], Path(payload["saved_model"]), sample, Path(payload["folder"]))


MAX_DIFFERENCE = 1e-3
"""The largest allowed difference of a float variant's output, relative to the largest output. If
the difference is larger, the conversion is wrong; the evaluation measures the effect of smaller
differences."""


def convert(
    name: str, saved_model: Path, sample: Mapping[str, np.ndarray], folder: Path
) -> Variant:
    """Writes a variant with its manifest.

    It leaks memory, and is therefore called in a child process.

    Args:
      name: the variant's name in `KINDS`.
      saved_model: the folder of the exported model.
      sample: transformed examples of the train split, [rows, ...] by feature.
      folder: an empty folder for the file and the manifest.

    Raises:
      TrainingError: the model cannot be converted, or the outputs of the variant differ from the
        outputs of the model.
    """
    model = load_numeric_model(saved_model)
    examples = model.select_features(sample)
    module, precision = KINDS[name]
    converted: ConvertedFile = importlib.import_module(f"{__package__}.{module}").convert(
        model, precision, examples, folder
    )
    _, package = RUNTIMES[converted.format]
    variant = Variant(
        name=name,
        format=converted.format,
        precision=converted.precision,
        **describe_file(converted.path),
        inputs=model.inputs,
        outputs=model.outputs,
        task=model.interface.task,
        classes=model.interface.classes,
        bounds=_bounds(model),
        runtime=package,
        runtime_version=version(package),
        how_to_load="trainer_module.export.variants.running.open_variant(pathlib.Path(FOLDER))",
        beside={name: hash_file(folder / name) for name in converted.extra_files},
        provider=converted.provider,
        trtexec=converted.trtexec,
        notes=converted.notes,
    )
    write_variant(variant, folder)
    difference = _check(model, folder, examples, converted.precision == "float")
    variant = replace(variant, measured={"largest_difference": difference})
    write_variant(variant, folder)
    return variant


def _bounds(model: NumericModel) -> tuple[float, float] | None:
    """Returns the bounds to which a classifier's probabilities are clipped, or None for other
    tasks.
    """
    margin = float(np.float32(tf_keras.backend.epsilon()))
    return (margin, float(np.float32(1 - margin))) if model.interface.classes else None


def _check(model: NumericModel, folder: Path, examples: Arrays, is_float: bool) -> float:
    """Returns the largest difference between outputs of the variant and of TensorFlow on the
    sample.

    Raises:
      TrainingError: an output is not finite or has another shape, or the difference is too large
        for a float variant.
    """
    expected_outputs = model.predict(examples)
    try:
        outputs = open_variant(folder).predict(examples)
    except (RuntimeError, ValueError) as error:
        raise TrainingError(
            f"the converted model fails ({shorten(error)}): replace the layer that the error names,"
            " or remove this variant from optimize.variants."
        ) from error
    largest = 0.0
    for name, expected in expected_outputs.items():
        output = outputs[name]
        if bad_rows := _rows_without_numbers(expected):
            raise TrainingError(
                f"output {name!r} of the original model is not finite for {bad_rows} of "
                f"{counted(len(expected), 'example')} of the train split, so a variant cannot be "
                "compared with the model."
            )
        if output.shape != expected.shape:
            raise TrainingError(
                f"output {name!r} of the variant has the shape {list(output.shape)}, and the "
                f"model's output {list(expected.shape)}: the conversion is wrong."
            )
        if bad_rows := _rows_without_numbers(output):
            raise TrainingError(
                f"output {name!r} of the variant is not finite for {bad_rows} of "
                f"{counted(len(output), 'example')} of the train split, unlike in the original "
                "model: the precision is too low."
            )
        allowed = MAX_DIFFERENCE * max(1.0, float(np.abs(expected).max()))
        largest = max(largest, float(np.abs(output.astype(np.float64) - expected).max()))
        if is_float and largest > allowed:
            raise TrainingError(
                f"output {name!r} of the variant differs from TensorFlow's output by up to "
                f"{largest:.3g}, which is more than a rounding error: the conversion is wrong."
            )
    return largest


def _rows_without_numbers(output: np.ndarray) -> int:
    """Returns the number of rows with NaN or infinite values."""
    return int((~np.isfinite(output.reshape(len(output), -1))).any(1).sum())
