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
"""The names of the family's models in `model.kind`, with the key of their layer sizes in
`model.options`.
"""

MAX_OUTPUTS = 1 << 16
"""The maximum number of values in a picture of `gan`, as its last layer has a weight for each value
and unit."""
MIN_BASE, MAX_BASE = 4, 8
"""The minimum and the maximum side, in pixels, of the picture that `dcgan` doubles."""


def doublings(height: int, width: int) -> int:
    """Returns how many times a picture of 4 to 8 pixels a side is doubled to reach a size.

    Raises:
      DataError: the sides are not 4 to 8 pixels times the same power of 2.
    """
    times, sides = 0, (height, width)
    while min(sides) >= 2 * MIN_BASE and all(side % 2 == 0 for side in sides):
        times, sides = times + 1, (sides[0] // 2, sides[1] // 2)
    if times and min(sides) >= MIN_BASE and max(sides) <= MAX_BASE:
        return times
    raise DataError(
        f"found {height}x{width} pixels, but dcgan starts from a picture of {MIN_BASE} to"
        f" {MAX_BASE} pixels a side and doubles it; give a height and a width, such as 28x28,"
        " 32x32, 48x64 or 64x64, and pictures are resized to them"
    )


def layer_sizes(model: ModelSettings) -> tuple[int, ...]:
    """Returns the layer sizes of a config from the noise to the picture, or () for the default.

    Raises:
      DataError: the sizes are not a list of positive integers; the message does not name the key.
    """
    sizes = model.options.get(KINDS[model.kind], [])
    is_valid = isinstance(sizes, list) and all(type(size) is int and size > 0 for size in sizes)
    if not is_valid:
        raise DataError(f"found {sizes!r}; expected: a list of whole numbers above 0")
    return tuple(sizes)


def check_size(
    kind: str, height: int, width: int, channels: int, filters: Sequence[int] = ()
) -> None:
    """Raises DataError if a generator cannot generate pictures of a size.

    Args:
      kind: `gan` or `dcgan`.
      height: the height in pixels.
      width: the width in pixels.
      channels: 1 or 3.
      filters: the result of `layer_sizes` for a dcgan.

    Raises:
      DataError: the size is not supported; the message does not name the column.
    """
    if kind == "dcgan":
        times = doublings(height, width)
        if filters and len(filters) != times:
            raise DataError(
                f"found {height}x{width} pixels and {len(filters)} numbers in"
                f" model.options.filters; dcgan needs {times} numbers for pictures of this size"
            )
    elif height * width * channels > MAX_OUTPUTS:
        raise DataError(
            f"found {height}x{width} pixels in {channels} channels, {height * width * channels:,}"
            f" numbers; gan generates at most {MAX_OUTPUTS:,} numbers. Give a smaller height and"
            " width, or use dcgan"
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
    kind = config.model.kind
    if kind not in KINDS:
        is_given = "kind" in config.model.model_fields_set
        found = f"found {kind!r}" if is_given else "this key is missing"
        yield "model.kind", f"{found}; `task: generation` needs {enumerate_names(KINDS, 'or')}"
        return
    for key in sorted(config.model.options.keys() - {KINDS[kind]}):
        yield f"model.options.{key}", f"{kind} reads only {KINDS[kind]}; remove this key"
    try:
        layer_sizes(config.model)
    except DataError as error:
        yield f"model.options.{KINDS[kind]}", str(error)


def _train_problems(train: Any) -> Iterator[tuple[str, str]]:
    if "loop" in train.model_fields_set and train.loop != "custom":
        yield (
            "train.loop",
            f"found {train.loop.value!r}; `task: generation` needs `custom`",
        )
    if train.precision is not Precision.FLOAT32:
        yield "train.precision", f"found {train.precision.value!r}; a GAN needs float32"
    if train.strategy.kind == Strategy.PARAMETER_SERVER:
        yield (
            "train.strategy",
            "found 'parameter_server', whose workers take separate steps; a GAN needs common steps:"
            " use mirrored or multi_worker_mirrored",
        )


def _picture_problems(config: Any) -> Iterator[tuple[str, str]]:
    pictures = config.columns_of(ImageFeature)
    for name in config.features.keys() - {*pictures}:
        yield f"features.{name}", "`task: generation` reads only pictures; remove this feature"
    if len(pictures) != 1:
        yield (
            "features",
            f"found {len(pictures)} features of type image; `task: generation` needs one feature,"
            " such as picture: {type: image, from: path}",
        )
        return
    name, kind = pictures[0], config.model.kind
    feature = config.features[name]
    if feature.size is None or kind not in KINDS:
        return
    try:
        sizes = layer_sizes(config.model)
    except DataError:  # `_model_problems` reports this error.
        return
    height, width = feature.size
    try:
        check_size(kind, height, width, feature.channels or 3, sizes)
    except DataError as error:
        yield f"features.{name}", str(error)
