"""Conversion to LiteRT."""

from __future__ import annotations

import re
from pathlib import Path

import tensorflow as tf

from components.optimizer.converting.exported import Arrays, NumericModel
from components.optimizer.converting.kinds import Made
from trainer_module.errors import TrainingError

FILE = "model.tflite"
WAYS_OUT = "leave the LiteRT variants out, or use a model of other layers"


def convert(model: NumericModel, precision: str, sample: Arrays, folder: Path) -> Made:
    """Writes the model as LiteRT's file, for batches of any size.

    Raises:
      TrainingError: LiteRT lacks an operation of the model's; names it.
    """
    del sample
    converter = tf.lite.TFLiteConverter.from_concrete_functions([model.function], model.trackable)
    try:
        content = converter.convert()
    except Exception as error:  # MLIR's errors have no class of their own.
        raise _refusal(error) from error
    (folder / FILE).write_bytes(content)
    return Made("litert", precision, folder / FILE)


def _refusal(error: Exception) -> TrainingError:
    lacking = sorted(set(re.findall(r"(?:Flex|Custom) ops: ([\\w, ]+)", str(error))))
    named = ", ".join(lacking) or " ".join(str(error).split())[:300]
    return TrainingError(f"LiteRT has no operation for {named}: {WAYS_OUT}.")
