"""The evaluation of an exported generator: its metrics, and the failures that prevent a push."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from trainer_module.families import read_example_files
from trainer_module.families.generation.measures import (
    Features,
    are_copies,
    flatten,
    flatten_in_parts,
    frechet_distance,
    inside,
    learn_features,
    mode_coverage,
    resample,
)
from trainer_module.families.generation.pictures import (
    Pictures,
    generation_task,
    picture_of,
    read_pictures,
)
from trainer_module.families.generation.sampler import DESCRIBE, FROM_NOISE, PICTURES
from trainer_module.families.generation.task import (
    CLASS_AGREEMENT,
    COPIES,
    COVERAGE,
    DISTANCE,
    PRECISION,
    RECALL,
    SPREAD,
)
from trainer_module.families.measured import Estimate, Measured
from trainer_module.settings import ImageFeature, TrainerSettings

_MIN_PICTURES, _MAX_PICTURES = 500, 2000
"""The smallest number of generated pictures, and the largest number of generated and real ones."""
_AT_ONCE = 128
_COLUMNS = 4096
"""The number of pixels whose variance is computed at a time."""
_NO_STEP = -2
"""A step number that gives noise which neither training nor its grids use."""
_MIN_VARIANCE = 1e-3
"""The variance of pixels in 0..1 below which pictures count as identical."""


@dataclass(frozen=True)
class Reference:
    """The pictures that generated pictures are compared with, in the size of the model."""

    train: Pictures
    held_out: Pictures
    """Pictures of the eval split, at most 2,000."""
    features: Features


def measure(folder: Path, custom_config: Mapping[str, Any]) -> Measured:
    """Measures a generator against pictures of the eval split.

    Args:
      folder: the folder of the exported model.
      custom_config: the settings, and the files of both splits.

    Raises:
      DataError: the pictures cannot be read.
    """
    settings = TrainerSettings.from_custom_config(custom_config)
    model = tf.saved_model.load(str(folder))
    shape = tuple(model.signatures[FROM_NOISE].structured_outputs[PICTURES].shape[1:])
    files = tuple(tuple(read_example_files(custom_config, split)) for split in ("train", "eval"))
    name, feature = picture_of(settings, shape)
    seed = settings.train.seed
    reference = _read_reference(files, name, feature.model_dump_json(), settings.label, seed)
    generated, requested = generate(model, reference.held_out, seed)
    return compare(generated, requested, reference, generation_task(settings).collapse)


@functools.lru_cache(maxsize=2)
def _read_reference(
    files: tuple[tuple[str, ...], ...], name: str, feature: str, label: str, seed: int
) -> Reference:
    """Returns the reference pictures; the cache gives the served model the same features."""
    column = ImageFeature.model_validate_json(feature)
    train, held_out = (read_pictures(one, name, column, label) for one in files)
    return Reference(train, held_out.draw(_MAX_PICTURES, seed), learn_features(train, seed))


def generate(model: Any, held_out: Pictures, seed: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Generates pictures with the classes and the size of real pictures.

    Args:
      model: a loaded SavedModel, whose pictures may have another size if it is the served model.
      held_out: real pictures.
      seed: the seed of the noise.

    Returns:
      The pictures, [pictures, height, width, channels] uint8, and their requested classes,
      [pictures] of bytes; None for a model without classes.
    """
    signature = model.signatures[FROM_NOISE]
    names = model.signatures[DESCRIBE]()["classes"].numpy().tolist()
    count = min(_MAX_PICTURES, max(_MIN_PICTURES, len(held_out.labels)))
    width = signature.structured_input_signature[1]["noise"].shape[1]
    noise = tf.random.stateless_normal([count, width], [seed, _NO_STEP])
    wanted = np.resize(held_out.labels, count)
    classes = [name.decode() for name in names]
    labels = np.maximum(Pictures(np.empty(0), wanted).indices(classes), 0)
    parts = [
        _to_bytes(
            _in_shape(
                signature(
                    noise=noise[start : start + _AT_ONCE],
                    label=tf.constant(labels[start : start + _AT_ONCE]),
                )[PICTURES],
                held_out.values.shape[1:],
            ).numpy()
        )
        for start in range(0, count, _AT_ONCE)
    ]
    requested = np.array(names, object)[labels] if names else None
    return np.concatenate(parts), requested


def _in_shape(pictures: tf.Tensor, shape: Sequence[int]) -> tf.Tensor:
    """Resizes pictures in 0..1 to a height and a width, and converts them to 1 or 3 channels."""
    *size, channels = shape
    if pictures.shape[-1] != channels:
        grey = pictures.shape[-1] == 1
        pictures = (tf.image.grayscale_to_rgb if grey else tf.image.rgb_to_grayscale)(pictures)
    if pictures.shape[1:3] != size:
        pictures = tf.image.resize(pictures, size, antialias=True)
    return pictures


def _to_bytes(pictures: np.ndarray) -> np.ndarray:
    """Converts values in 0..1 to uint8 in 0..255; NaN becomes black."""
    return np.nan_to_num(np.round(pictures * 255.0)).astype(np.uint8)


def compare(
    generated: np.ndarray, requested: np.ndarray | None, reference: Reference, collapse: float
) -> Measured:
    """Computes all metrics of generated pictures.

    Args:
      generated: [pictures, height, width, channels] uint8.
      requested: the requested class of each picture, [pictures] of bytes, if the model has classes.
      reference: the real pictures.
      collapse: the least variance of generated pictures as a share of the real variance.
    """
    features, held_out = reference.features, reference.held_out
    real, made = features.extract(held_out.values), features.extract(generated)
    distance = frechet_distance(real, made)
    estimate = functools.partial(_estimate, real=len(real), generated=len(made))
    modes = [features.find_mode(found) for found in (held_out.values, generated)]
    copies = are_copies(
        flatten(generated), flatten_in_parts(reference.train.values), flatten(held_out.values)
    )
    spread = variance_ratio(held_out.values, generated)
    metrics: dict[str, float | Estimate] = {
        DISTANCE: _centred(estimate(distance, lambda r, g: frechet_distance(real[r], made[g]))),
        PRECISION: _mean_of(inside(made, real), estimate, of_generated=True),
        RECALL: _mean_of(inside(real, made), estimate, of_generated=False),
        COVERAGE: estimate(
            mode_coverage(modes[0], modes[1], features.modes),
            lambda r, g: mode_coverage(modes[0][r], modes[1][g], features.modes),
        ),
        COPIES: _mean_of(copies, estimate, of_generated=True),
        SPREAD: spread,
    }
    if requested is not None and features.classes:
        names = np.array([name.encode() for name in features.classes], object)
        metrics[CLASS_AGREEMENT] = _mean_of(
            names[modes[1]] == requested, estimate, of_generated=True
        )
    return Measured(
        metrics,
        tuple(_notes(features, held_out, modes)),
        tuple(_failures(spread, _variance(held_out.values), _variance(generated), collapse)),
    )


def variance_ratio(real: np.ndarray, generated: np.ndarray) -> float:
    """Returns the mean pixel variance of generated pictures divided by that of real pictures.

    The ratio is 0 if all real pictures are identical.
    """
    total = _variance(real)
    return _variance(generated) / total if total > 0 else 0.0


def _variance(pictures: np.ndarray) -> float:
    """Returns the mean variance across pictures of the pixels in 0..1."""
    columns = pictures.reshape(len(pictures), -1)
    parts = (columns[:, start : start + _COLUMNS] for start in range(0, columns.shape[1], _COLUMNS))
    return float(np.concatenate([np.var(part / 255.0, axis=0) for part in parts]).mean())


def _estimate(
    value: float, of_rows: Callable[[np.ndarray, np.ndarray], float], real: int, generated: int
) -> Estimate:
    """Returns a metric with its resamples."""
    return Estimate(value, resample(of_rows, real, generated))


def _centred(distance: Estimate) -> Estimate:
    """Returns the distance with centred resamples, as duplicates in resamples increase the
    distance.
    """
    shift = distance.value - distance.resamples.mean()
    return Estimate(distance.value, np.maximum(distance.resamples + shift, 0.0))


def _mean_of(
    is_it: np.ndarray, estimate: Callable[..., Estimate], *, of_generated: bool
) -> Estimate:
    """Returns the share of pictures with a property, as a metric with resamples."""
    return estimate(
        float(is_it.mean()),
        lambda r, g: float(is_it[g if of_generated else r].mean()),
    )


def _notes(features: Features, held_out: Pictures, modes: Sequence[np.ndarray]) -> list[str]:
    """Returns notes on the features in use and on missing modes."""
    if not features.classes:
        return [
            "there are no classes: pictures are compared by their principal components, and modes"
            f" are {features.modes} clusters of them"
        ]
    known = held_out.indices(features.classes)
    right = float((modes[0] == known).mean())
    made = np.bincount(modes[1], minlength=features.modes)
    missing = [name for name, count in zip(features.classes, made, strict=True) if not count]
    notes = [f"the classifier whose features are compared has an accuracy of {right:.3f}"]
    if missing:
        notes.append(f"no picture of {', '.join(missing)} is generated")
    return notes


def _failures(spread: float, real: float, variance: float, least: float) -> list[str]:
    """Returns why a generator has collapsed or cannot be evaluated; empty without a failure."""
    if real < _MIN_VARIANCE:
        return [
            f"the pictures of the eval split are almost equal: their variance is {real:.2g}, but "
            f"the evaluation of a generator needs at least {_MIN_VARIANCE:g}"
        ]
    failure = "the generator has collapsed: its pictures"
    if variance < _MIN_VARIANCE:
        return [
            f"{failure} are almost equal, with a variance of {variance:.2g}, below"
            f" {_MIN_VARIANCE:g}"
        ]
    if spread < least:
        return [
            f"{failure} vary {spread:.2g} times as much as real ones, but task.collapse is"
            f" {least:g}"
        ]
    return []
