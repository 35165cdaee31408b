"""Which model is trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import Field, PositiveInt

from trainer_module.models import AUTO, ZOO
from trainer_module.sections import DOCSTRING, Settings
from trainer_module.settings.bert import AnyBertSizes
from trainer_module.settings.transfer import TransferSettings


def _name_models(schema: dict[str, Any]) -> None:
    """Puts the registered models before the description of `kind`."""
    schema["description"] = f"{', '.join(f'`{name}`' for name in ZOO)}, {DOCSTRING}"


def _name_readers(key: str) -> Callable[[dict[str, Any]], None]:
    """Puts the models that read a key before its description."""

    def change(schema: dict[str, Any]) -> None:
        readers = ", ".join(name for name, spec in ZOO.items() if key in spec.reads)
        schema["description"] = f"{readers}: {DOCSTRING}"

    return change


class ModelSettings(Settings):
    """The model: one of the zoo with its sizes, or a builder of yours."""

    kind: str = Field(default=AUTO, json_schema_extra=_name_models)
    """or the import path of a function
    `build_model(problem, settings)` that returns an uncompiled tf_keras model. `auto`:
    `convnet` where a feature is an image (`cnn` if `filters` are given), `bag` where all are text,
    otherwise `tabular`."""
    size: AnyBertSizes = Field(default=None, json_schema_extra=_name_readers("size"))
    """`tiny`, `mini`, `small`, `base`, or a mapping with the sizes. Default: `tiny`, or what the
    `weights` are of."""
    filters: list[PositiveInt] = Field(default=[32], json_schema_extra=_name_readers("filters"))
    """filters of each 3x3 convolution, which is followed by a 2x2 max-pooling; of `convnet` those
    of each stage of two convolutions, by default from 16 up to 128 by the size of the picture; of
    `text_cnn` those of each width, 100."""
    widths: list[PositiveInt] = Field(default=[3, 4, 5], json_schema_extra=_name_readers("widths"))
    """so many tokens in a row are what its filters see."""
    members: PositiveInt = Field(default=8, json_schema_extra=_name_readers("members"))
    """networks that share most weights, whose predictions are averaged."""
    trees: PositiveInt = Field(default=1000, json_schema_extra=_name_readers("trees"))
    """so many for each output, at most: early stopping ends them sooner."""
    max_depth: PositiveInt = Field(default=6, json_schema_extra=_name_readers("max_depth"))
    """conditions between the root of a tree and a leaf, at most."""
    shrinkage: float = Field(default=0.1, gt=0, le=1, json_schema_extra=_name_readers("shrinkage"))
    """how much of what a tree has learnt it may add: with less, more trees are needed."""
    weights: str | None = Field(default=None, json_schema_extra=_name_readers("weights"))
    """what the network begins with: a file of Keras's weights (.h5, .weights.h5, .keras), or the
    folder of a model of the same kind that was exported or pushed; for `bert` a folder with Hugging
    Face's `config.json`, `vocab.txt` and `model.safetensors`. Default: random weights."""
    transfer: TransferSettings | None = Field(
        default=None, json_schema_extra=_name_readers("transfer")
    )
    """how the network is fine-tuned; default: all of it is trained from the first step."""
    sync_batch_norm: bool = Field(default=False, json_schema_extra=_name_readers("sync_batch_norm"))
    """whether batch normalisation takes the mean and variance of all replicas' examples."""
    hidden_units: list[PositiveInt] = [64]
    """Units of each dense layer before the output; of `tabular` 128 and 128, of `bag`, `text_cnn`,
    `bert`, `convnet` and the networks of pictures none."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of the activations dropped before the output layer while training; of `tabular` after
    each dense layer, 0.1."""
    embedding_size: PositiveInt = 8
    """Size of the vector that a value of a categorical feature is embedded in."""
    options: dict[str, Any] = {}
    """For a builder of yours: anything it wants to know."""

    @property
    def is_custom(self) -> bool:
        """Whether `kind` is an import path."""
        return "." in self.kind

    @property
    def begins_frozen(self) -> bool:
        """Whether the head alone is trained first."""
        if self.transfer is None:
            return False
        return bool(self.weights) if self.transfer.freeze is None else self.transfer.freeze

    @property
    def builder(self) -> str | None:
        """The import path of a builder of the user's; None for a model of the zoo."""
        return self.kind if self.is_custom else None
