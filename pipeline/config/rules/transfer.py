"""What has to hold between networks that others have trained, their weights and the pictures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipeline.config.issues import Issue, near_match
from pipeline.config.settings import PipelineConfig
from trainer_module.errors import TrainingError, enumerate_names
from trainer_module.families.supervised.models.pretrained.formats import check_format
from trainer_module.settings import AUTO, ImageFeature
from trainer_module.settings.model import NETWORKS, ZOO

KEYS = ("size", "weights", "transfer", "sync_batch_norm")
"""Of the section `model`: not every model reads them, and builders of the user's do not."""


def networks_are_there_to_transfer(config: PipelineConfig) -> Iterator[Issue]:
    """What is said of a network means nothing to a model that has none."""
    model = config.trainer_settings.model
    spec = ZOO.get(model.kind)
    given = {key for key in KEYS if getattr(model, key)}
    if spec:
        given |= config.model.model_fields_set & {key for s in ZOO.values() for key in s.reads}
    for key in (key for key in type(model).model_fields if key in given):
        if not (spec and key in spec.reads) and getattr(model, key) is not None:
            able = enumerate_names((n for n, s in ZOO.items() if key in s.reads), "or")
            yield Issue(
                f"model.{key}", f"{model.kind} does not read it; leave it out, or use {able}"
            )


def pictures_are_large_enough(config: PipelineConfig) -> Iterator[Issue]:
    """A network halves a picture several times."""
    kind = config.model.kind
    if kind not in NETWORKS or config.preprocessing is not None:
        return
    least = NETWORKS[kind].least
    for name, feature in config.features.items():
        size = feature.size if isinstance(feature, ImageFeature) else None
        if size is not None and min(size) < least:
            yield Issue(
                f"features.{name}",
                f"found {size[0]}x{size[1]} pixels, but {kind} takes {least}x{least} "
                f"and more; give height: {least} and width: {least}, as pictures are resized",
            )


def something_is_left_to_fine_tune(config: PipelineConfig) -> Iterator[Issue]:
    """A network that is unfrozen after the last epoch never is."""
    transfer, epochs = config.model.transfer, config.train.epochs
    after = transfer.unfreeze_after if transfer else None
    if after and epochs != AUTO and after >= epochs:
        yield Issue(
            "model.transfer.unfreeze_after",
            f"found {after}, but train.epochs is {epochs}, so nothing would be fine-tuned; give "
            f"fewer than {epochs}, or more epochs",
        )


def unfreezing_has_its_time(config: PipelineConfig) -> Iterator[Issue]:
    """What holds from then on means nothing where that is never."""
    transfer = config.model.transfer
    if transfer is None or transfer.unfreeze_after:
        return
    for key in ("unfreeze_layers", "learning_rate"):
        if key in transfer.model_fields_set:
            yield Issue(
                f"model.transfer.{key}",
                f"found {getattr(transfer, key)}, but the network is never unfrozen; say when by "
                "unfreeze_after: 10, or leave it out",
            )


def heads_are_said_once(config: PipelineConfig) -> Iterator[Issue]:
    """Two keys for the dense layers before the output."""
    transfer = config.model.transfer
    if transfer and transfer.head is not None and "hidden_units" in config.model.model_fields_set:
        yield Issue(
            "model.hidden_units",
            f"found {config.model.hidden_units}, but model.transfer.head says so too; leave one "
            "of them out",
        )


def phases_are_of_our_training(config: PipelineConfig) -> Iterator[Issue]:
    """Whoever trains otherwise freezes what they like."""
    if config.train.run_fn and config.model.transfer:
        yield Issue("model.transfer", f"{config.train.run_fn} trains in its own way; leave it out")


def weights_are_a_file_of_weights(config: PipelineConfig) -> Iterator[Issue]:
    """Local weights have to be there, and of a format that holds numbers alone."""
    path, kind = config.model.weights, config.model.kind
    if path is None or kind not in NETWORKS or "://" in path:
        return
    if not Path(path).exists():
        folder = Path(path).parent
        names = [str(p) for p in folder.iterdir()] if folder.is_dir() else []
        hint = f"; {near_match(path, names)}" if 0 < len(names) <= 20 else ""
        yield Issue("model.weights", f"found {path!r}; there is no such file or folder{hint}")
    elif Path(path).is_file():
        try:
            check_format(Path(path), path)
        except TrainingError as error:
            yield Issue("model.weights", str(error).removeprefix("model.weights: ").rstrip("."))


TRANSFER_RULES = (
    networks_are_there_to_transfer,
    pictures_are_large_enough,
    something_is_left_to_fine_tune,
    unfreezing_has_its_time,
    heads_are_said_once,
    phases_are_of_our_training,
    weights_are_a_file_of_weights,
)
"""All rules of this module."""
