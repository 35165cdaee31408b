"""One conversion from the exported model to a folder with a manifest, checked on the sample."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import tf_keras

from components.optimizer.converting.exported import Arrays, NumericModel, load_numeric
from components.optimizer.converting.kinds import KINDS, ConvertedFile
from trainer_module.errors import TrainingError, counted, shorten
from trainer_module.export.variants.manifest import Variant, describe_file, hash_file, write_variant
from trainer_module.export.variants.running import RUNTIMES, open_variant

FARTHEST = 1e-3
"""By so much, as a share of the largest output, may a float variant be off before it counts as
wrong: what metrics make of less is for who evaluates it."""


def convert(
    name: str, saved_model: Path, sample: Mapping[str, np.ndarray], folder: Path
) -> Variant:
    """Writes a variant with its manifest; leaks memory, so it is called in a child process.

    Args:
      name: of the variant, in `KINDS`.
      saved_model: an exported model.
      sample: transformed examples of the train split, [rows, ...] by feature.
      folder: empty, for the file and the manifest.

    Raises:
      TrainingError: the model cannot be converted: names the operation and the ways out; or the
          variant gives numbers that are not the model's.
    """
    model = load_numeric(saved_model)
    examples = model.fitting(sample)
    module, precision = KINDS[name]
    made: ConvertedFile = importlib.import_module(f"{__package__}.{module}").convert(
        model, precision, examples, folder
    )
    _, package = RUNTIMES[made.format]
    variant = Variant(
        name=name,
        format=made.format,
        precision=made.precision,
        **describe_file(made.path),
        inputs=model.inputs,
        outputs=model.outputs,
        task=model.interface.task,
        classes=model.interface.classes,
        bounds=_bounds(model),
        runtime=package,
        runtime_version=version(package),
        how_to_load="trainer_module.export.variants.running.open_variant(pathlib.Path(FOLDER))",
        beside={name: hash_file(folder / name) for name in made.beside},
        provider=made.provider,
        trtexec=made.trtexec,
        notes=made.notes,
    )
    write_variant(variant, folder)
    difference = _check(model, folder, examples, made.precision == "float")
    variant = replace(variant, measured={"largest_difference": difference})
    write_variant(variant, folder)
    return variant


def _bounds(model: NumericModel) -> tuple[float, float] | None:
    """Those that a task with classes keeps what is measured in."""
    margin = float(np.float32(tf_keras.backend.epsilon()))
    return (margin, float(np.float32(1 - margin))) if model.interface.classes else None


def _check(model: NumericModel, folder: Path, examples: Arrays, is_float: bool) -> float:
    """The largest difference of an output from TensorFlow's on the sample.

    Raises:
      TrainingError: it is not finite, or too large for a variant that computes the same.
    """
    right = model.predict(examples)
    try:
        found = open_variant(folder).predict(examples)
    except (RuntimeError, ValueError) as error:
        raise TrainingError(
            f"the converted model does not run ({shorten(error)}): replace the layer that is named "
            "there, or leave this variant out of optimize.variants."
        ) from error
    largest = 0.0
    for name, expected in right.items():
        given = found[name]
        if wrong := _rows_without_numbers(expected):
            raise TrainingError(
                f"output {name!r} of the model itself is not a number for {wrong} of "
                f"{counted(len(expected), 'example')} of the train split: no variant of it can be "
                "right."
            )
        if given.shape != expected.shape:
            raise TrainingError(
                f"output {name!r} is {list(given.shape)}, but TensorFlow's is "
                f"{list(expected.shape)}: the converter has made another model."
            )
        if wrong := _rows_without_numbers(given):
            raise TrainingError(
                f"output {name!r} is not a number for {wrong} of "
                f"{counted(len(given), 'example')} of the train split, though the model's is: "
                "the precision is too low for it."
            )
        allowed = FARTHEST * max(1.0, float(np.abs(expected).max()))
        largest = max(largest, float(np.abs(given.astype(np.float64) - expected).max()))
        if is_float and largest > allowed:
            raise TrainingError(
                f"output {name!r} is up to {largest:.3g} off from TensorFlow's, which rounding "
                "does not explain: the converter has made another model."
            )
    return largest


def _rows_without_numbers(output: np.ndarray) -> int:
    """How many rows hold NaN or what is infinite."""
    return int((~np.isfinite(output.reshape(len(output), -1))).any(1).sum())
