"""The sample of examples, and the conversion of all variants, which a killed run can resume."""

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
from trainer_module.runtime import report_notice, report_part, report_progress

logger = logging.getLogger(__name__)

MAX_SAMPLE_ROWS = 512
"""The maximum number of examples of a sample: enough to calibrate the range of each tensor."""
MAX_SAMPLE_BYTES = 64 << 20
"""The maximum bytes of a sample in memory; a sample of large pictures has fewer examples."""


def read_sample(
    examples: Sequence[types.Artifact], split: str, transform_graph: str, interface: ModelInterface
) -> dict[str, np.ndarray]:
    """Returns a sample of the transformed examples of a split: [rows, ...] for each feature.

    Args:
      transform_graph: the folder of the transform graph, for the types of features.

    Raises:
      TrainingError: there are no examples.
    """
    files = sorted(split_files(examples, split))
    spec = tft.TFTransformOutput(transform_graph).transformed_feature_spec()
    features = {feature.name: spec[feature.name] for feature in interface.features}
    batch = [record for part in read_spread(files, _sample_rows(interface)) for record in part]
    if not batch:
        raise TrainingError(
            f"the split {split!r} has no examples, but variants need examples for calibration."
        )
    parsed = tf.io.parse_example(tf.constant(batch), features)
    return {name: tensor.numpy() for name, tensor in parsed.items()}


def _sample_rows(interface: ModelInterface) -> int:
    example_bytes = sum(
        int(np.prod(feature.shape)) * np.dtype(feature.dtype).itemsize
        for feature in interface.features
    )
    return max(1, min(MAX_SAMPLE_ROWS, MAX_SAMPLE_BYTES // max(example_bytes, 1)))


Convert = Callable[[str, Path], Variant]
"""A function that converts a variant. Its arguments are the variant's name and its new folder."""


def make_variants(
    names: Sequence[str], folder: Path, convert: Convert
) -> tuple[dict[str, Variant], dict[str, str]]:
    """Converts the variants that the folder does not contain yet.

    Args:
      folder: the folder of all variants, which remains if the run is killed.

    Returns:
      The variants by name, and the reasons of failed conversions by name.
    """
    made: dict[str, Variant] = {}
    failed: dict[str, str] = {}
    for number, name in enumerate(names, 1):
        check_stop()
        report_part(number, len(names), "variant", name)
        reusable = _reusable_variant(folder / name)
        if reusable is not None:
            made[name] = reusable
            continue
        try:
            made[name] = convert(name, folder / name)
        except TrainingError as error:
            logger.warning("Variant %s cannot be converted", name, exc_info=True)
            failed[name] = str(error)
    report_progress(len(names), len(names), "variant")
    return made, failed


def _reusable_variant(folder: Path) -> Variant | None:
    """Returns the undamaged variant of an interrupted run, or None. Deletes a damaged variant."""
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
    """Copies the variants of the same model that earlier executions have converted.

    Args:
      output: the folder of this execution's artifact; its parent has the folders of all executions.
      made_from: the hash of the model, the sample and the code of the variants.
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
