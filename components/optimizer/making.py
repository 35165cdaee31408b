"""Makes the variants, by representative examples; a run that is killed leaves those done."""

from __future__ import annotations

import logging
import os
import posixpath
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft
from tfx import types
from tfx.dsl.io import fileio

from components.copying import copy_folder
from components.examples_reader import read_spread
from components.optimizer.artifacts import read_report
from components.optimizer.report import REPORT_FILE
from components.processes.stopping import check_stop
from components.split_files import split_files
from trainer_module.errors import DataError, TrainingError
from trainer_module.export.interface import ModelInterface
from trainer_module.export.variants.manifest import Variant, read_variant
from trainer_module.runtime import report_notice, report_progress

logger = logging.getLogger(__name__)

MOST_ROWS = 512
"""Examples that say enough of the range of each number."""
MOST_BYTES = 64 << 20
"""Of them in memory: of large pictures there are fewer."""


def read_sample(
    examples: Sequence[types.Artifact], split: str, transform_graph: str, interface: ModelInterface
) -> dict[str, np.ndarray]:
    """Transformed examples of a split by the names of the model's features, [rows, ...] each.

    Args:
      examples: transformed, of one or several spans.
      split: whose examples are read.
      transform_graph: the folder of the transform graph, for their types.
      interface: of the model, for the features that it asks for.

    Raises:
      TrainingError: there are no examples.
    """
    files = sorted(split_files(examples, split))
    spec = tft.TFTransformOutput(transform_graph).transformed_feature_spec()
    wanted = {feature.name: spec[feature.name] for feature in interface.features}
    batch = [record for part in read_spread(files, _rows(interface)) for record in part]
    if not batch:
        raise TrainingError(
            f"the split {split!r} has no example, by which variants are calibrated and checked."
        )
    parsed = tf.io.parse_example(tf.constant(batch), wanted)
    return {name: tensor.numpy() for name, tensor in parsed.items()}


def _rows(interface: ModelInterface) -> int:
    of_one = sum(
        int(np.prod(feature.shape)) * np.dtype(feature.dtype).itemsize
        for feature in interface.features
    )
    return max(1, min(MOST_ROWS, MOST_BYTES // max(of_one, 1)))


Convert = Callable[[str, Path], Variant]
"""Makes the variant of a name in a folder that is there whole, or not at all."""


def make_variants(
    names: Sequence[str], folder: Path, convert: Convert
) -> tuple[dict[str, Variant], dict[str, str]]:
    """Converts what the folder does not hold yet.

    Args:
      names: of the variants.
      folder: theirs, by name; it outlives a run that is killed.
      convert: makes one.

    Returns:
      The variants by name; and why the others cannot be made.
    """
    made: dict[str, Variant] = {}
    failed: dict[str, str] = {}
    for number, name in enumerate(names):
        check_stop()
        report_progress(number, len(names), "variant", name)
        kept = _kept(folder / name)
        if kept is not None:
            made[name] = kept
            continue
        try:
            made[name] = convert(name, folder / name)
        except TrainingError as error:
            logger.warning("Variant %s cannot be made", name, exc_info=True)
            failed[name] = str(error)
    report_progress(len(names), len(names), "variant")
    return made, failed


def _kept(folder: Path) -> Variant | None:
    """Returns a variant that an earlier attempt has made, unless its files were damaged since."""
    if not folder.exists():
        return None
    try:
        variant = read_variant(folder)
    except DataError:
        logger.warning("A variant is made again", exc_info=True)
        shutil.rmtree(folder)
        return None
    report_notice(f"{folder.name} was made before")
    return variant


def take_over(names: Sequence[str], folder: Path, output: str, made_from: str) -> None:
    """Copies variants that an earlier execution has made of the same model, and decided otherwise.

    Args:
      names: those that are needed.
      folder: where to.
      output: the folder of the artifact of this execution, beside which those of earlier ones are.
      made_from: the same for variants of the same model by the same code.
    """
    pattern = posixpath.join(posixpath.dirname(output.rstrip("/")), "*", REPORT_FILE)
    for path in fileio.glob(pattern):
        earlier_output = posixpath.dirname(path)
        report = read_report(earlier_output)
        if report is None or report.made_from != made_from:
            continue
        for name in names:
            earlier = posixpath.join(earlier_output, name)
            if not fileio.exists(earlier) or (folder / name).exists():
                continue
            part = folder / f".{name}.part"
            shutil.rmtree(part, ignore_errors=True)
            copy_folder(earlier, str(part))
            os.replace(part, folder / name)
