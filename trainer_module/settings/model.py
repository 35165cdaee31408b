"""Which model is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from trainer_module.sections import DOCSTRING, Settings
from trainer_module.settings.models import AUTO, ZOO


class BertSizes(Settings):
    """The sizes that fix a BERT's weights; the dense layers have 4 times `hidden` units between."""

    layers: PositiveInt = 2
    """Blocks of attention and dense layers."""
    hidden: PositiveInt = 128
    """Length of the vector of a token."""
    heads: PositiveInt = 2
    """Of the attention; they share `hidden` out among them."""
    max_tokens: PositiveInt = 512
    """The most tokens that can be read at once, of all text columns together."""

    @model_validator(mode="after")
    def _heads_share(self) -> BertSizes:
        if self.hidden % self.heads:
            raise ValueError(
                f"hidden is {self.hidden}, which {self.heads} heads cannot share out; use a "
                "multiple of heads"
            )
        return self


SIZES = {
    "tiny": BertSizes(layers=2, hidden=128, heads=2),
    "mini": BertSizes(layers=4, hidden=256, heads=4),
    "small": BertSizes(layers=4, hidden=512, heads=8),
    "base": BertSizes(layers=12, hidden=768, heads=12),
}
"""Those of Turc et al. (2019, arXiv:1908.08962) and of the paper."""


def _as_sizes(value: Any) -> Any:
    if value is None or isinstance(value, Mapping | BertSizes):
        return value
    if isinstance(value, str) and value in SIZES:
        return SIZES[value]
    raise ValueError(
        f"found {value!r}; use {', '.join(SIZES)}, or {{layers: 2, hidden: 128, heads: 2}}"
    )


AnyBertSizes = Annotated[
    BertSizes | None,
    BeforeValidator(
        _as_sizes,
        json_schema_input_type=Literal["tiny", "mini", "small", "base"] | BertSizes | None,
    ),
]


class TransferSettings(Settings):
    """Two-phase fine-tuning: the head alone first, on a frozen network, then its last layers."""

    freeze: bool | None = None
    """Whether the network begins frozen, with its batch normalisation in inference mode; without,
    all of it is trained from the first step. Default: whether `weights` are given, as a random
    network that is frozen tells little."""
    unfreeze_after: PositiveInt | None = None
    """Epochs after which the network's last layers are trained as well, batch normalisation
    excepted; default: never."""
    unfreeze_layers: PositiveInt = 30
    """How many of its layers that are, counted from the end."""
    learning_rate: float = Field(default=1e-5, gt=0)
    """From then on; until then it is `train.learning_rate`."""
    head: list[PositiveInt] | None = None
    """Units of each dense layer between the network and the output; default: `hidden_units`."""

    @model_validator(mode="after")
    def _has_something_to_unfreeze(self) -> TransferSettings:
        if self.unfreeze_after and self.freeze is False:
            raise ValueError(
                f"unfreeze_after is {self.unfreeze_after}, but with freeze: false nothing is "
                "frozen; leave one of the two out"
            )
        return self


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
