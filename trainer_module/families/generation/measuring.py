"""The evaluation of an exported generator: its metrics, and its failures."""

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
"""The minimum number of generated pictures, and the maximum number of generated and of real
pictures."""
_AT_ONCE = 128
"""The number of pictures that are generated at a time."""
_COLUMNS = 4096
"""The number of pixels whose variance is computed at a time."""
_NO_STEP = -2
"""A step number for the seed of noise that is not used in training."""
_MIN_VARIANCE = 1e-3
"""The variance of pixels in 0..1 below which pictures count as identical."""


@dataclass(frozen=True)
class Reference:
    """The real pictures with which generated pictures are compared, in the size of the model."""

    train: Pictures
    """The pictures of the train split."""
    held_out: Pictures
    """The pictures of the eval split, or 2,000 of them."""
    features: Features
    """The features, which are learned from the train split."""


def measure(folder: Path, custom_config: Mapping[str, Any]) -> Measured:
    """Returns the metrics of a generator, which compare its pictures with those of the eval split.

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
    """Returns the reference pictures.

    By the cache, a new model and the model in service are compared by the same features.
    """
    column = ImageFeature.model_validate_json(feature)
    train, held_out = (read_pictures(split, name, column, label) for split in files)
    return Reference(train, held_out.draw(_MAX_PICTURES, seed), learn_features(train, seed))


def generate(model: Any, held_out: Pictures, seed: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Generates pictures with the classes and the size of real pictures.

    Args:
      model: a loaded SavedModel; the pictures of a model in service may have another size, and are
        then resized.
      held_out: the real pictures.
      seed: the seed of the noise.

    Returns:
      The pictures, [pictures, height, width, channels] uint8, and their requested classes,
      [pictures] of bytes, or None for a model without classes.
    """
    signature = model.signatures[FROM_NOISE]
    names = model.signatures[DESCRIBE]()["classes"].numpy().tolist()
    count = min(_MAX_PICTURES, max(_MIN_PICTURES, len(held_out.labels)))
    width = signature.structured_input_signature[1]["noise"].shape[1]
    noise = tf.random.stateless_normal([count, width], [seed, _NO_STEP])
    requested_labels = np.resize(held_out.labels, count)
    classes = [name.decode() for name in names]
    labels = np.maximum(Pictures(np.empty(0), requested_labels).indices(classes), 0)
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
    """Returns pictures in 0..1 with a height, a width, and 1 or 3 channels."""
    *size, channels = shape
    if pictures.shape[-1] != channels:
        grey = pictures.shape[-1] == 1
        pictures = (tf.image.grayscale_to_rgb if grey else tf.image.rgb_to_grayscale)(pictures)
    if pictures.shape[1:3] != size:
        pictures = tf.image.resize(pictures, size, antialias=True)
    return pictures


def _to_bytes(pictures: np.ndarray) -> np.ndarray:
    """Returns values in 0..1 as uint8 in 0..255; NaN becomes 0."""
    return np.nan_to_num(np.round(pictures * 255.0)).astype(np.uint8)


def compare(
    generated: np.ndarray, requested: np.ndarray | None, reference: Reference, collapse: float
) -> Measured:
    """Returns all metrics of generated pictures.

    Args:
      generated: the generated pictures, [pictures, height, width, channels] uint8.
      requested: the requested class of each picture, [pictures] of bytes, or None without classes.
      reference: the real pictures.
      collapse: the value of `task.collapse`.
    """
    features, held_out = reference.features, reference.held_out
    real, made = features.extract(held_out.values), features.extract(generated)
    distance = frechet_distance(real, made)
    estimate = functools.partial(_estimate, real=len(real), generated=len(made))
    modes = [features.find_mode(pictures) for pictures in (held_out.values, generated)]
    copies = are_copies(
        flatten(generated), flatten_in_parts(reference.train.values), flatten(held_out.values)
    )
    spread = variance_ratio(held_out.values, generated)
    metrics: dict[str, float | Estimate] = {
        DISTANCE: _centred(estimate(distance, lambda r, g: frechet_distance(real[r], made[g]))),
        PRECISION: _mean_of(inside(made, real), estimate, is_generated=True),
        RECALL: _mean_of(inside(real, made), estimate, is_generated=False),
        COVERAGE: estimate(
            mode_coverage(modes[0], modes[1], features.modes),
            lambda r, g: mode_coverage(modes[0][r], modes[1][g], features.modes),
        ),
        COPIES: _mean_of(copies, estimate, is_generated=True),
        SPREAD: spread,
    }
    if requested is not None and features.classes:
        names = np.array([name.encode() for name in features.classes], object)
        metrics[CLASS_AGREEMENT] = _mean_of(
            names[modes[1]] == requested, estimate, is_generated=True
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
    value: float, measure_rows: Callable[[np.ndarray, np.ndarray], float], real: int, generated: int
) -> Estimate:
    """Returns a metric with its resamples. `resample` describes the other arguments."""
    return Estimate(value, resample(measure_rows, real, generated))


def _centred(distance: Estimate) -> Estimate:
    """Returns the distance with resamples whose mean is the distance.

    The duplicates in resamples increase the distance.
    """
    shift = distance.value - distance.resamples.mean()
    return Estimate(distance.value, np.maximum(distance.resamples + shift, 0.0))


def _mean_of(
    has_property: np.ndarray, estimate: Callable[..., Estimate], *, is_generated: bool
) -> Estimate:
    """Returns the share of pictures with a property, as a metric with resamples.

    Args:
      has_property: whether each picture has the property, [pictures] bool.
      estimate: the function that adds resamples.
      is_generated: whether the pictures are the generated pictures, and not the real pictures.
    """
    return estimate(
        float(has_property.mean()),
        lambda r, g: float(has_property[g if is_generated else r].mean()),
    )


def _notes(features: Features, held_out: Pictures, modes: Sequence[np.ndarray]) -> list[str]:
    """Returns notes on the features and on classes that are not generated."""
    if not features.classes:
        return [
            "the data has no classes, so pictures are compared by their principal components, and"
            f" the modes are {features.modes} clusters of the components"
        ]
    labels = held_out.indices(features.classes)
    accuracy = float((modes[0] == labels).mean())
    made = np.bincount(modes[1], minlength=features.modes)
    missing = [name for name, count in zip(features.classes, made, strict=True) if not count]
    notes = [
        "pictures are compared by the features of a classifier, whose accuracy on the eval split is"
        f" {accuracy:.3f}"
    ]
    if missing:
        notes.append(f"the generator generates no picture of {', '.join(missing)}")
    return notes


def _failures(spread: float, real: float, variance: float, least: float) -> list[str]:
    """Returns the reasons not to bless a generator, or an empty list.

    Args:
      spread: the variance of generated pictures divided by that of real pictures.
      real: the variance of real pictures.
      variance: the variance of generated pictures.
      least: the value of `task.collapse`.
    """
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
            f"{failure} have {spread:.2g} times the variance of real pictures, less than"
            f" task.collapse ({least:g})"
        ]
    return []
