"""What has to hold between `train.augment` and the rest of a config."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.config.issues import Issue
from pipeline.config.settings import PipelineConfig
from trainer_module.settings import ImageFeature


def augmented_are_pictures(config: PipelineConfig) -> Iterator[Issue]:
    """What is turned and shifted is a picture; a function of the user's may make some."""
    if config.train.augment is None or config.preprocessing is not None:
        return
    if not config.columns_of(ImageFeature):
        yield Issue(
            "train.augment",
            "it changes pictures, but no feature is an image; leave it out, or give a column "
            "{type: image}",
        )


def mixed_labels_are_classes(config: PipelineConfig) -> Iterator[Issue]:
    """Half of two classes is a label; the mean of two pictures shows no mean of their numbers."""
    augment, task = config.train.augment, config.target
    if augment is not None and augment.mixup and not config.task.is_classification:
        yield Issue(
            "train.augment.mixup",
            f"found {augment.mixup:g}, but task {task.kind} has no classes to mix; leave it out",
        )


def cutouts_leave_something(config: PipelineConfig) -> Iterator[Issue]:
    """A square that covers a whole picture leaves nothing to learn from."""
    cutout = config.train.augment.cutout if config.train.augment is not None else 0
    for name, feature in config.features.items():
        size = feature.size if isinstance(feature, ImageFeature) else None
        if size is not None and cutout >= min(size):
            yield Issue(
                "train.augment.cutout",
                f"found {cutout}, but image {name!r} is {size[0]}x{size[1]} pixels; "
                f"use at most half of its side, {min(size) // 2}",
            )


def augmentation_is_of_our_training(config: PipelineConfig) -> Iterator[Issue]:
    """Whoever trains otherwise changes pictures as they like."""
    if config.train.run_fn and config.train.augment:
        yield Issue(
            "train.augment", f"{config.train.run_fn} reads pictures as they are; leave it out"
        )


AUGMENT_RULES = (
    augmented_are_pictures,
    mixed_labels_are_classes,
    cutouts_leave_something,
    augmentation_is_of_our_training,
)
"""All rules of this module."""
