"""Which model is trained."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from trainer_module.errors import TrainingError
from trainer_module.sections import DOCSTRING, Settings, load_own

Activation = Literal["relu", "elu", "selu", "gelu", "swish", "tanh", "sigmoid", "linear"]

_LAYER_KINDS = ("conv", "pool", "batch_norm", "dropout")
"""Keys, of which a layer has exactly one; a layer's other keys are options of `conv`."""

_OTHER_NOTATIONS = {
    "flatten": "the layers after the last one are flattened by themselves; leave it out",
    "dense": "dense layers come after those of pictures: give model.hidden_units: [256, 128]",
}
"""Layers of other notations, and what does the same here."""


class PictureLayer(Settings):
    """One layer over pictures: a convolution, a max-pooling, batch normalisation or dropout."""

    conv: PositiveInt | None = None
    """Filters of a convolution."""
    size: PositiveInt = 3
    """Height and width of its filters, in pixels."""
    stride: PositiveInt = 1
    """Pixels from one place of a filter to the next."""
    padding: Literal["valid", "same"] = "valid"
    """`valid`: filters stay within the picture, which becomes smaller by `size` - 1; `same`: zeros
    around it keep its size."""
    activation: Activation = "relu"
    """What its outputs go through."""
    pool: PositiveInt | None = None
    """Height and width of the squares of which a max-pooling keeps the largest value each."""
    batch_norm: bool = False
    """Whether the layer before is normalised, over the examples of all replicas."""
    dropout: float | None = Field(default=None, gt=0, lt=1)
    """Share of the activations dropped while training."""

    def __str__(self) -> str:
        """As the config has it: `{conv: 256, size: 3}`."""
        given = self.model_dump(exclude_defaults=True)
        return f"{{{', '.join(f'{key}: {value}' for key, value in given.items())}}}"

    @model_validator(mode="after")
    def _is_one_layer(self) -> PictureLayer:
        given = [key for key in _LAYER_KINDS if getattr(self, key)]
        if len(given) != 1:
            found = f"both {' and '.join(given)}" if given else "none of them"
            raise ValueError(
                f"a layer is one of {', '.join(_LAYER_KINDS)}, and this has {found}; give each "
                "layer an entry of its own, such as {conv: 32}"
            )
        # Whoever reads the settings again is given all keys.
        changed = [key for key in self.model_dump(exclude_defaults=True) if key not in _LAYER_KINDS]
        if changed and given != ["conv"]:
            raise ValueError(f"{changed[0]} is for conv, not for {given[0]}; leave it out")
        return self

    def left_of(self, side: int) -> int:
        """Returns the height or the width that it leaves of one, in pixels; 0 and less: nothing."""
        if self.conv is not None:
            if self.padding == "same":
                return -(-side // self.stride)
            return (side - self.size) // self.stride + 1
        return side // self.pool if self.pool else side


def _as_layer(value: Any) -> Any:
    named = value if isinstance(value, Mapping) else [value]
    for name in _OTHER_NOTATIONS:
        if name in named:
            raise ValueError(_OTHER_NOTATIONS[name])
    return {value: True} if value == "batch_norm" else value


AnyPictureLayer = Annotated[
    PictureLayer,
    BeforeValidator(_as_layer, json_schema_input_type=PictureLayer | Literal["batch_norm"]),
]


def too_small_for(layers: Iterable[PictureLayer], height: int, width: int) -> str:
    """Which layer a picture is too small for, in words; empty if none.

    Args:
      layers: in their order.
      height: of the picture, in pixels.
      width: likewise.
    """
    for number, layer in enumerate(layers):
        left = layer.left_of(height), layer.left_of(width)
        if min(left) < 1:
            return (
                f"layer {number + 1}, {layer}, gets {height}x{width} pixels and leaves nothing of "
                "them; use a larger image, fewer or smaller poolings, or padding: same"
            )
        height, width = left
    return ""


@dataclass(frozen=True)
class Network:
    """One of tf_keras.applications, without its top: pictures in, a map of features out."""

    constructor: str
    """Its function there."""
    is_bgr: bool = False
    """Whether it takes blue, green and red less their means on ImageNet, as Caffe's models do; the
    others take 0..255, and scale within themselves."""
    least: int = 32
    """Pixels of height and of width."""


NETWORKS: dict[str, Network] = {
    "resnet50": Network("ResNet50", is_bgr=True),
    **{f"efficientnet_b{size}": Network(f"EfficientNetB{size}") for size in range(8)},
    "vgg16": Network("VGG16", is_bgr=True),
    "mobilenet_v3": Network("MobileNetV3Large"),
    "mobilenet_v3_small": Network("MobileNetV3Small"),
}
"""By the names in `model.kind`."""

IMAGENET_MEANS = (103.939, 116.779, 123.68)
"""Of blue, green and red, 0..255, as Caffe's models subtract them."""

IMAGENET_DEVIATIONS = (0.229, 0.224, 0.225)
"""Of red, green and blue, 0..1."""


@dataclass(frozen=True)
class ModelSpec:
    """What has to be known of a model before its builder is imported."""

    builder: str
    """Import path; empty if the model is grown."""
    needs: str = ""
    """The type of a feature without which it cannot be built; empty if any feature will do."""
    reads: tuple[str, ...] = ()
    """Keys of the section `model` that not every model reads."""
    refuses: tuple[str, ...] = ()
    """The types of features that it cannot take."""
    tasks: tuple[str, ...] = ()
    """The tasks that it can do, if they have no options; empty if any task will do."""
    model: Mapping[str, Any] = field(default_factory=dict)
    """What it takes where the config leaves keys of the section `model` out."""
    train: Mapping[str, Any] = field(default_factory=dict)
    """Likewise, of the section `train`."""
    features: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Likewise, of each feature, by its type."""
    fine_tuning_defaults: Mapping[str, Any] = field(default_factory=dict)
    """Likewise, of the section `train` where `model.weights` were trained before."""


_MODELS = "trainer_module.families.supervised.models"
ZOO: dict[str, ModelSpec] = {
    "bag": ModelSpec(
        f"{_MODELS}.texts.build_bag",
        needs="text",
        model={"hidden_units": []},
        # Steps as long as the gradient: Adam's are as long for words that hardly ever come up.
        train={
            "optimizer": {"kind": "sgd", "momentum": 0.9, "clip_norm": 5.0},
            "learning_rate": {"schedule": "cosine", "initial": 0.05},
            "steps": 4000,
            "early_stopping": {"patience": 6},
        },
    ),
    "bert": ModelSpec(
        f"{_MODELS}.bert.build_model",
        needs="text",
        reads=("size", "weights", "outputs"),
        model={"dropout": 0.1, "hidden_units": []},
        features={"text": {"tokens": "wordpiece", "encoding": "sequence", "vocabulary_size": 8000}},
        train={
            "optimizer": {"kind": "adamw", "weight_decay": 0.01, "clip_norm": 1.0},
            "learning_rate": {"schedule": "linear", "initial": 5e-4},
            "batch_size": {"at_most": 32},
            "steps": 2000,
            "early_stopping": {"patience": 6},
        },
        fine_tuning_defaults={
            "optimizer": {
                "kind": "adamw",
                "weight_decay": 0.01,
                "clip_norm": 1.0,
                "layer_decay": 0.9,
            },
            "learning_rate": {"schedule": "linear", "initial": 1e-4},
            "batch_size": {"at_most": 32},
            "epochs": 4,
        },
    ),
    "cnn": ModelSpec(f"{_MODELS}.pictures.build_cnn", needs="image", reads=("filters", "layers")),
    "convnet": ModelSpec(
        f"{_MODELS}.pictures.build_convnet",
        needs="image",
        reads=("filters",),
        model={"filters": [], "hidden_units": []},
        train={
            "optimizer": {"kind": "adamw", "weight_decay": 0.01},
            "learning_rate": {"schedule": "cosine", "initial": 0.002},
            # The rate falls to 0 over them, so that stopping earlier would miss the best of it.
            "steps": 1000,
            # Of fewer pictures the statistics of a step are noise that hides small differences.
            "batch_size": 32,
            "augment": {"shift": 0.1, "zoom": 0.1},
        },
    ),
    "mlp": ModelSpec(f"{_MODELS}.tables.build_mlp"),
    "tabular": ModelSpec(
        f"{_MODELS}.tables.build_tabular",
        reads=("members",),
        model={"hidden_units": [128, 128], "dropout": 0.1},
        train={
            "optimizer": {"kind": "adamw", "weight_decay": 0.01},
            "learning_rate": {"schedule": "cosine", "initial": "auto"},
            "batch_size": {"at_most": 256},
            "steps": {"small": 2000, "large": 8000},
            "early_stopping": {"patience": 6},
        },
    ),
    "text_cnn": ModelSpec(
        f"{_MODELS}.texts.build_text_cnn",
        needs="text",
        reads=("filters", "widths"),
        model={"filters": [100], "hidden_units": [], "dropout": 0.5, "embedding_size": 32},
        features={"text": {"encoding": "sequence"}},
    ),
    "trees": ModelSpec(
        builder="",
        reads=("trees", "max_depth", "shrinkage"),
        refuses=("image", "text"),
        tasks=("binary", "multiclass", "regression"),
    ),
    "wide_deep": ModelSpec(f"{_MODELS}.tables.build_wide_deep"),
    **{
        name: ModelSpec(
            f"{_MODELS}.pretrained.build_model",
            needs="image",
            reads=("weights", "transfer", "sync_batch_norm", "outputs"),
            model={"hidden_units": []},
        )
        for name in NETWORKS
    },
}
"""The models of supervised tasks by the name in `model.kind`."""

LEARNERS: dict[str, ModelSpec] = {
    "dqn": ModelSpec(
        builder="",
        reads=("double", "dueling", "prioritised", "n_step"),
        tasks=("control",),
        model={"hidden_units": [256, 256]},
        train={"steps": 60_000, "batch_size": 128, "learning_rate": 1e-3},
    ),
}
"""Likewise, of other families of tasks, which build them by themselves."""

TRAINER, TREES_TRAINER = TRAINERS = ("trainer_module.trainer", "trainer_module.trees_trainer")
"""The modules with a `run_fn`: of networks, and of what is grown."""

PREDICTION, EMBEDDING = "prediction", "embedding"
"""What a model may answer, as `model.outputs` calls it."""

POOLER = "bert_pooler"
"""The layer of a BERT that gives what the first token has become in the end."""

AUTO = "auto"
"""The kind of a model that follows from the features."""


def kind_for(feature_types: Iterable[str], given: Collection[str] = ()) -> str:
    """Returns the model for features of these types, where the config names none.

    Args:
      feature_types: of all columns.
      given: the keys of `model` that have a value in the config; `filters` and `layers` are a
        `cnn`'s.
    """
    inputs = {kind for kind in feature_types if kind != "ignore"}
    if "image" in inputs:
        return "cnn" if {"filters", "layers"} & set(given) else "convnet"
    return "bag" if inputs == {"text"} else "tabular"


def undemanding_models() -> list[str]:
    """Returns the names of the models that any feature will do for."""
    return [name for name, spec in ZOO.items() if not spec.needs and not spec.refuses]


def is_forest(kind: str) -> bool:
    """Returns whether a model is not trained in steps of an optimizer, over a network's weights."""
    return kind in ZOO and not ZOO[kind].builder


def trainer_of(kind: str) -> str:
    """Returns the module whose `run_fn` and `train` train a kind of model."""
    return TREES_TRAINER if is_forest(kind) else TRAINER


def load_trainer(kind: str) -> ModuleType:
    """Returns the module of `trainer_of`, imported."""
    return import_module(trainer_of(kind))


def load_builder(kind: str) -> Callable[..., Any]:
    """Returns the builder of a zoo name or of an import path `module.function`.

    Raises:
      TrainingError: if `kind` is neither, or the module or function cannot be found.
    """
    if is_forest(kind):
        raise TrainingError(f"model {kind!r} has no builder: {TREES_TRAINER}.run_fn grows it.")
    path = ZOO[kind].builder if kind in ZOO else kind
    if "." not in path:
        near = difflib.get_close_matches(kind, ZOO, n=1)
        hint = f"did you mean {near[0]!r}? Use" if near else "use"
        raise TrainingError(
            f"there is no model {kind!r}; {hint} {', '.join(ZOO)}, or the import path of a "
            "builder, such as my_models.build_model."
        )
    builder: Callable[..., Any] = load_own("model", path)
    return builder


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
    head: Literal["average", "flatten", "published"] | list[PositiveInt] | None = None
    """What the head begins with: `average`, the mean over the places of what the network makes of a
    picture, or `flatten`, all places one after the other; `hidden_units` follow. A list gives the
    units of each dense layer after the mean, in place of `hidden_units`. `published` is the head
    that came with `weights`, of ImageNet's classes: nothing is trained. Default: `average`."""

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
    names = (f"`{name}`" for name in (*ZOO, *LEARNERS))
    schema["description"] = f"{', '.join(names)}, {DOCSTRING}"


def _name_readers(key: str) -> Callable[[dict[str, Any]], None]:
    """Puts the models that read a key before its description."""

    def change(schema: dict[str, Any]) -> None:
        specs = {**ZOO, **LEARNERS}
        readers = ", ".join(name for name, spec in specs.items() if key in spec.reads)
        schema["description"] = f"{readers}: {DOCSTRING}"

    return change


class ModelSettings(Settings):
    """The model: one of the zoo with its sizes, or a builder of yours."""

    kind: str = Field(default=AUTO, json_schema_extra=_name_models)
    """or the import path of a function
    `build_model(problem, settings)` that returns an uncompiled tf_keras model. `auto`:
    `convnet` where a feature is an image (`cnn` if `filters` or `layers` are given), `bag` where
    all are text, otherwise `tabular`."""
    size: AnyBertSizes = Field(default=None, json_schema_extra=_name_readers("size"))
    """`tiny`, `mini`, `small`, `base`, or a mapping with the sizes. Default: `tiny`, or what the
    `weights` are of."""
    filters: list[PositiveInt] = Field(default=[32], json_schema_extra=_name_readers("filters"))
    """filters of each 3x3 convolution, which is followed by a 2x2 max-pooling; of `convnet` those
    of each stage of two convolutions, by default from 16 up to 128 by the size of the picture; of
    `text_cnn` those of each width, 100."""
    layers: list[AnyPictureLayer] | None = Field(
        default=None, min_length=1, json_schema_extra=_name_readers("layers")
    )
    """each layer over the pictures, in place of `filters`: `{conv: 256}`, `{pool: 2}`, `batch_norm`
    or `{dropout: 0.25}`; what the last one gives is flattened for the `hidden_units`."""
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
    """what the network begins with: `imagenet`, a file of Keras's weights (.h5, .weights.h5,
    .keras), or the folder of a model of the same kind that was exported or pushed; for `bert` a
    name on Hugging Face's hub, such as `bert-base-uncased`, or a folder with its `config.json`,
    `vocab.txt` and `model.safetensors`. Default: random weights."""
    transfer: TransferSettings | None = Field(
        default=None, json_schema_extra=_name_readers("transfer")
    )
    """how the network is fine-tuned; default: all of it is trained from the first step."""
    sync_batch_norm: bool = Field(default=False, json_schema_extra=_name_readers("sync_batch_norm"))
    """whether batch normalisation takes the mean and variance of all replicas' examples."""
    outputs: list[Literal["prediction", "embedding"]] = Field(
        default=["prediction"], min_length=1, json_schema_extra=_name_readers("outputs")
    )
    """what the pushed model answers: `prediction`, what the task predicts, and `embedding`, the
    numbers that the network makes of the texts or pictures, which its head begins with. Of
    `[embedding]` the head is trained and evaluated all the same."""
    double: bool = Field(default=True, json_schema_extra=_name_readers("double"))
    """whether the network that learns chooses the action whose value the target network gives (van
    Hasselt et al., 2016)."""
    dueling: bool = Field(default=True, json_schema_extra=_name_readers("dueling"))
    """whether the value of an observation and the advantages of actions are learnt apart (Wang et
    al., 2016)."""
    prioritised: bool = Field(default=True, json_schema_extra=_name_readers("prioritised"))
    """whether transitions come up by how wrong their values were (Schaul et al., 2016)."""
    n_step: PositiveInt = Field(default=3, json_schema_extra=_name_readers("n_step"))
    """rewards that a target adds up before it takes the value of what follows."""
    hidden_units: list[PositiveInt] = [64]
    """Units of each dense layer before the output; of `tabular` 128 and 128, of `bag`, `text_cnn`,
    `bert`, `convnet` and the networks of pictures none; of `dqn` 256 and 256."""
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
    def has_published_head(self) -> bool:
        """Whether the network tells the classes that its weights were trained for."""
        return self.transfer is not None and self.transfer.head == "published"

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
