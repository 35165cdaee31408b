"""The hooks of the family `generation`, and what it has to say of a config."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainer_module.errors import DataError, enumerate_names
from trainer_module.families import Family
from trainer_module.families.generation.sizes import KINDS, check_size, layer_sizes
from trainer_module.features.image import ImageFeature
from trainer_module.settings import Precision
from trainer_module.strategies.base import Strategy

_PACKAGE = "trainer_module.families.generation"

_TRAIN_KEYS = (
    *("epochs", "steps", "batch_size", "learning_rate", "strategy", "cluster", "loop"),
    *("steps_per_execution", "retries", "backup_steps", "checkpoints", "callbacks", "seed"),
    "precision",
)
_DATA_KEYS = ("label", "stratify", "split_by", "on_bad_file", "order_by", "unlabelled")


class GenerationFamily(Family):
    """A generator and a discriminator learn from pictures, and the generator is pushed."""

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
    golden_rows = f"{_PACKAGE}.sampling.golden_rows"
    sample = f"{_PACKAGE}.sampling.write_samples"

    def problems(self, config: Any) -> Iterator[tuple[str, str]]:
        """What cannot be generated, or trained, as the config has it."""
        yield from _of_model(config)
        yield from _of_train(config.train)
        yield from _of_pictures(config)


def _of_model(config: Any) -> Iterator[tuple[str, str]]:
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


def _of_train(train: Any) -> Iterator[tuple[str, str]]:
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
            "found 'parameter_server'; its workers take steps of their own, and the two networks"
            " take each step together: use mirrored or multi_worker_mirrored",
        )


def _of_pictures(config: Any) -> Iterator[tuple[str, str]]:
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
    except DataError:  # Which is said of the model.
        return
    height, width = feature.size
    try:
        check_size(kind, height, width, feature.channels or 3, sizes)
    except DataError as error:
        yield f"features.{name}", str(error)
