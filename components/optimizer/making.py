"""The making of variants, with a sample of examples; after a kill the complete ones remain."""

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
"""The most examples of a sample, which are enough to calibrate the range of each number."""
MOST_BYTES = 64 << 20
"""The most bytes of a sample in memory, which reduces the number of large pictures."""


def read_sample(
    examples: Sequence[types.Artifact], split: str, transform_graph: str, interface: ModelInterface
) -> dict[str, np.ndarray]:
    """Returns transformed examples of a split by the model's features, [rows, ...] each.

    Args:
      examples: transformed examples, of one or several spans.
      split: the split to read.
      transform_graph: the folder of the transform graph, for the types of features.
      interface: the model's interface, for the names of features.

    Raises:
      TrainingError: there are no examples.
    """
    files = sorted(split_files(examples, split))
    spec = tft.TFTransformOutput(transform_graph).transformed_feature_spec()
    wanted = {feature.name: spec[feature.name] for feature in interface.features}
    batch = [record for part in read_spread(files, _rows(interface)) for record in part]
    if not batch:
        raise TrainingError(f"the split {split!r} has no examples to calibrate and check variants.")
    parsed = tf.io.parse_example(tf.constant(batch), wanted)
    return {name: tensor.numpy() for name, tensor in parsed.items()}


def _rows(interface: ModelInterface) -> int:
    of_one = sum(
        int(np.prod(feature.shape)) * np.dtype(feature.dtype).itemsize
        for feature in interface.features
    )
    return max(1, min(MOST_ROWS, MOST_BYTES // max(of_one, 1)))


Convert = Callable[[str, Path], Variant]
"""A function that makes a variant by name, atomically in a folder."""


def make_variants(
    names: Sequence[str], folder: Path, convert: Convert
) -> tuple[dict[str, Variant], dict[str, str]]:
    """Converts the variants that the folder does not contain yet.

    Args:
      names: the variants.
      folder: the folder of all variants, which survives a kill of the run.
      convert: makes one variant.

    Returns:
      The variants by name, and the reasons why others cannot be made.
    """
    made: dict[str, Variant] = {}
    failed: dict[str, str] = {}
    for number, name in enumerate(names):
        check_stop()
        report_progress(number, len(names), "variant", name)
        kept = _reusable_variant(folder / name)
        if kept is not None:
            made[name] = kept
            continue
        try:
            made[name] = convert(name, folder / name)
        except TrainingError as error:
            logger.warning("Variant %s cannot be converted", name, exc_info=True)
            failed[name] = str(error)
    report_progress(len(names), len(names), "variant")
    return made, failed


def _reusable_variant(folder: Path) -> Variant | None:
    """Returns the variant of an earlier attempt; None if there is none or its files are damaged."""
    if not folder.exists():
        return None
    try:
        variant = read_variant(folder)
    except DataError:
        logger.warning("A variant is converted again", exc_info=True)
        shutil.rmtree(folder)
        return None
    report_notice(f"reuses the variant {folder.name} of an interrupted run")
    return variant


def reuse_variants(names: Sequence[str], folder: Path, output: str, made_from: str) -> None:
    """Copies variants that an earlier execution with other conditions has made of the same model.

    Args:
      names: the required variants.
      folder: the target folder.
      output: the folder of this execution's artifact, which lies beside those of earlier ones.
      made_from: a key that variants of the same model by the same code share.
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
