"""The family `generation`: its config checks, its supported sizes and its hooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from trainer_module.errors import DataError, enumerate_names
from trainer_module.families import Family
from trainer_module.features.image import ImageFeature
from trainer_module.settings import ModelSettings, Precision
from trainer_module.strategies.base import Strategy

KINDS = {"gan": "units", "dcgan": "filters"}
"""The family's models by the name in `model.kind`, with the key of `model.options` for layer sizes.
"""

MAX_OUTPUTS = 1 << 16
"""The largest number of values that a dense layer generates; each needs a weight per unit below."""
MIN_BASE, MAX_BASE = 4, 8
"""The smallest and the largest side, in pixels, of the picture that convolutions start from."""


def doublings(height: int, width: int) -> int:
    """Returns how often a picture of 4 to 8 pixels a side is doubled to reach a size.

    Raises:
      DataError: the size is not 4 to 8 pixels times a power of 2, the same for both sides.
    """
    times, sides = 0, (height, width)
    while min(sides) >= 2 * MIN_BASE and all(side % 2 == 0 for side in sides):
        times, sides = times + 1, (sides[0] // 2, sides[1] // 2)
    if times and min(sides) >= MIN_BASE and max(sides) <= MAX_BASE:
        return times
    raise DataError(
        f"found {height}x{width} pixels, but dcgan doubles a picture of {MIN_BASE} to {MAX_BASE}"
        " pixels a side; right are sizes such as 28x28, 32x32, 48x64 and 64x64: give height and"
        " width, as pictures are resized"
    )


def layer_sizes(model: ModelSettings) -> tuple[int, ...]:
    """Returns the layer sizes in a config, starting at the noise; empty for the default sizes.

    Raises:
      DataError: the sizes are not a list of positive integers; the message does not name the key.
    """
    given = model.options.get(KINDS[model.kind], [])
    is_list = isinstance(given, list) and all(type(size) is int and size > 0 for size in given)
    if not is_list:
        raise DataError(f"found {given!r}; right is a list of whole numbers above 0")
    return tuple(given)


def check_size(
    kind: str, height: int, width: int, channels: int, filters: Sequence[int] = ()
) -> None:
    """Checks that a generator can generate pictures of a size.

    Args:
      kind: `gan` or `dcgan`.
      height: the height in pixels.
      width: the width in pixels.
      channels: 1 or 3.
      filters: the filters of a dcgan at each size, from the smallest on, as `layer_sizes` returns
        them.

    Raises:
      DataError: the size is not supported; the message does not name the column.
    """
    if kind == "dcgan":
        times = doublings(height, width)
        if filters and len(filters) != times:
            raise DataError(
                f"found {height}x{width} pixels and {len(filters)} model.options.filters; dcgan"
                f" doubles such a picture {times} times, and needs as many filters"
            )
    elif height * width * channels > MAX_OUTPUTS:
        raise DataError(
            f"found {height}x{width} pixels in {channels} channels, {height * width * channels:,}"
            f" numbers, but the dense layers of gan make {MAX_OUTPUTS:,} at most; give a smaller"
            " height and width, or use dcgan"
        )


_PACKAGE = "trainer_module.families.generation"

_TRAIN_KEYS = (
    *("epochs", "steps", "batch_size", "learning_rate", "strategy", "cluster", "loop"),
    *("steps_per_execution", "retries", "backup_steps", "checkpoints", "callbacks", "seed"),
    "precision",
)
_DATA_KEYS = ("label", "stratify", "split_by", "on_bad_file", "order_by", "unlabelled")


class GenerationFamily(Family):
    """The family that trains a generator and a discriminator on pictures."""

    reads_rows = True
    reads = frozenset(
        {
            *("features", "schema", "on_anomaly", "model.kind", "model.options"),
            *(f"train.{key}" for key in _TRAIN_KEYS),
            *(f"data.{key}" for key in _DATA_KEYS),
        }
    )
    graph = "pipeline.graph.generation.wire"
    data_graph = "pipeline.graph.generation.wire_data"
    run_fn = "trainer_module.generation_trainer.run_fn"
    measure = f"{_PACKAGE}.measuring.measure"
    golden_rows = f"{_PACKAGE}.sampler.golden_rows"
    sample = f"{_PACKAGE}.sampler.write_samples"

    def problems(self, config: Any) -> Iterator[tuple[str, str]]:
        """Yields contradictions in the model, the training and the pictures."""
        yield from _model_problems(config)
        yield from _train_problems(config.train)
        yield from _picture_problems(config)


def _model_problems(config: Any) -> Iterator[tuple[str, str]]:
    kind, given = config.model.kind, config.model.model_fields_set
    if kind not in KINDS:
        found = f"found {kind!r}" if "kind" in given else "it is missing"
        yield "model.kind", f"{found}; a task generation has {enumerate_names(KINDS, 'or')}"
        return
    for key in sorted(config.model.options.keys() - {KINDS[kind]}):
        yield f"model.options.{key}", f"{kind} does not read it; right is {KINDS[kind]}"
    try:
        layer_sizes(config.model)
    except DataError as error:
        yield f"model.options.{KINDS[kind]}", str(error)


def _train_problems(train: Any) -> Iterator[tuple[str, str]]:
    if "loop" in train.model_fields_set and train.loop != "custom":
        yield (
            "train.loop",
            f"found {train.loop.value!r}; two networks are trained by `custom` alone",
        )
    if train.precision is not Precision.FLOAT32:
        yield "train.precision", f"found {train.precision.value!r}; a GAN is trained in float32"
    if train.strategy.kind == Strategy.PARAMETER_SERVER:
        yield (
            "train.strategy",
            "found 'parameter_server'; its workers take separate steps, but the two networks share"
            " each step: use mirrored or multi_worker_mirrored",
        )


def _picture_problems(config: Any) -> Iterator[tuple[str, str]]:
    pictures = config.columns_of(ImageFeature)
    for name in config.features.keys() - {*pictures}:
        yield f"features.{name}", "a task generation learns from pictures alone; leave it out"
    if len(pictures) != 1:
        yield (
            "features",
            f"found {len(pictures)} features of type image; a task generation learns from one, such"
            " as picture: {type: image, from: path}",
        )
        return
    name, kind = pictures[0], config.model.kind
    feature = config.features[name]
    if feature.size is None or kind not in KINDS:
        return
    try:
        sizes = layer_sizes(config.model)
    except DataError:  # The check of the model reports the error.
        return
    height, width = feature.size
    try:
        check_size(kind, height, width, feature.channels or 3, sizes)
    except DataError as error:
        yield f"features.{name}", str(error)
