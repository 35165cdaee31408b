"""The section `model` of a config, and the registry of models."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveInt,
    field_validator,
    model_validator,
)

from trainer_module.errors import TrainingError
from trainer_module.sections import DOCSTRING, NameOrPath, Settings, load_own, refuse_keys

Activation = Literal["relu", "elu", "selu", "gelu", "swish", "tanh", "sigmoid", "linear"]

_LAYER_KINDS = ("conv", "pool", "batch_norm", "dropout")
"""The keys of a layer of which exactly one is given; all other keys are options of `conv`."""

_OTHER_NOTATIONS = {
    "flatten": "the layers after the last one are flattened by themselves; leave it out",
    "dense": "dense layers come after those of pictures: give model.hidden_units: [256, 128]",
}
"""Layer names of other notations, each with the advice that replaces it here."""


class PictureLayer(Settings):
    """A layer over pictures: a convolution, a max-pooling, a batch normalisation or a dropout."""

    conv: PositiveInt | None = None
    """The number of filters of a convolution."""
    size: PositiveInt = 3
    """The height and width of each filter, in pixels."""
    stride: PositiveInt = 1
    """The step between two neighbouring positions of a filter, in pixels."""
    padding: Literal["valid", "same"] = "valid"
    """`valid`: filters stay within the picture, whose height and width shrink by `size` - 1;
    `same`: zeros around the picture preserve its height and width."""
    activation: Activation = "relu"
    """The activation function that follows the convolution."""
    pool: PositiveInt | None = None
    """The height and width of the windows of a max-pooling, in pixels."""
    batch_norm: bool = False
    """Whether the layer is a batch normalisation, with the statistics of the examples of all
    replicas."""
    dropout: float | None = Field(default=None, gt=0, lt=1)
    """The share of the activations that are dropped during training."""

    def __str__(self) -> str:
        """Returns the layer in the notation of a config, such as `{conv: 256, size: 3}`."""
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
        # Settings that were serialised contain all keys, also those with default values.
        changed = [key for key in self.model_dump(exclude_defaults=True) if key not in _LAYER_KINDS]
        if changed and given != ["conv"]:
            raise ValueError(f"{changed[0]} is for conv, not for {given[0]}; leave it out")
        return self

    def output_side(self, side: int) -> int:
        """Returns the height or width of the layer's output, in pixels; below 1 if the input is too
        small.

        Args:
          side: the height or width of the input, in pixels.
        """
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
    """Returns a message about the first layer whose input is too small; empty if there is none.

    Args:
      layers: in their order.
      height: the height of the picture, in pixels.
      width: the width of the picture, in pixels.
    """
    for number, layer in enumerate(layers):
        left = layer.output_side(height), layer.output_side(width)
        if min(left) < 1:
            return (
                f"layer {number + 1}, {layer}, gets {height}x{width} pixels and leaves nothing of "
                "them; use a larger image, fewer or smaller poolings, or padding: same"
            )
        height, width = left
    return ""


@dataclass(frozen=True)
class Network:
    """A network of tf_keras.applications without its top: it maps pictures to feature maps."""

    constructor: str
    """The name of its function in tf_keras.applications."""
    is_bgr: bool = False
    """Whether its input is blue, green and red, from which the means on ImageNet are subtracted, as
    for Caffe's models; all other networks take 0..255 and rescale the values themselves."""
    least: int = 32
    """The smallest height and width that it accepts, in pixels."""


NETWORKS: dict[str, Network] = {
    "resnet50": Network("ResNet50", is_bgr=True),
    **{f"efficientnet_b{size}": Network(f"EfficientNetB{size}") for size in range(8)},
    "vgg16": Network("VGG16", is_bgr=True),
    "mobilenet_v3": Network("MobileNetV3Large"),
    "mobilenet_v3_small": Network("MobileNetV3Small"),
}
"""The pretrained networks by their name in `model.kind`."""

IMAGENET_MEANS = (103.939, 116.779, 123.68)
"""The means of blue, green and red on ImageNet, in 0..255, which Caffe's models subtract."""

IMAGENET_DEVIATIONS = (0.229, 0.224, 0.225)
"""The standard deviations of red, green and blue on ImageNet, in 0..1."""


TRAINER, TREES_TRAINER, ENSEMBLE_TRAINER = TRAINERS = (
    "trainer_module.trainer",
    "trainer_module.trees_trainer",
    "trainer_module.ensemble_trainer",
)
"""The modules with a `run_fn`: for models trained in steps, for models that are grown, and for
ensembles of both."""


@dataclass(frozen=True)
class ModelSpec:
    """The properties of a model that are needed before its builder is imported."""

    builder: str
    """The import path of the builder; empty for models that are grown, such as trees."""
    trainer: str = TRAINER
    """The module whose `run_fn` and `train` train the model."""
    needs: str = ""
    """The feature type that the model requires; empty if it accepts any features."""
    reads: tuple[str, ...] = ()
    """The keys of the section `model` that this model reads and others ignore."""
    refuses: tuple[str, ...] = ()
    """The feature types that the model does not accept."""
    tasks: tuple[str, ...] = ()
    """The names of the tasks that the model supports, without options; empty if it supports all."""
    model: Mapping[str, Any] = field(default_factory=dict)
    """The model's defaults of keys in the section `model`."""
    train: Mapping[str, Any] = field(default_factory=dict)
    """The model's defaults of keys in the section `train`."""
    features: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The model's defaults of the keys of features, by feature type."""
    fine_tuning_defaults: Mapping[str, Any] = field(default_factory=dict)
    """The model's defaults of keys in the section `train` where it fine-tunes `model.weights`."""
    small_operations: bool = False
    """Whether the operations of a step are too small for several threads on a few cores."""
    description: str = ""
    """A sentence about the model, which editors show."""


_MODELS = "trainer_module.families.supervised.models"
_BOOSTED_KEYS = ("trees", "max_depth", "shrinkage", "subsample", "leaf_l2", "column_share")
_TABULAR_MODEL = {"hidden_units": [128, 128], "dropout": 0.1}
_TABULAR_TRAIN = {
    "optimizer": {"kind": "adamw", "weight_decay": 0.01},
    "learning_rate": {"schedule": "cosine", "initial": "auto"},
    "batch_size": {"at_most": 256},
    "steps": {"small": 2000, "large": 8000},
    "early_stopping": {"patience": 6},
}
ZOO: dict[str, ModelSpec] = {
    "bag": ModelSpec(
        f"{_MODELS}.texts.build_bag",
        needs="text",
        model={"hidden_units": []},
        # SGD's steps grow with the gradient; Adam's are as long for rare words as for others.
        train={
            "optimizer": {"kind": "sgd", "momentum": 0.9, "clip_norm": 5.0},
            "learning_rate": {"schedule": "cosine", "initial": 0.05},
            "steps": 4000,
            "early_stopping": {"patience": 6},
        },
        description="The mean of the embedded words of texts, and a linear layer.",
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
        description="A Transformer for texts, also with published weights.",
    ),
    "cnn": ModelSpec(
        f"{_MODELS}.pictures.build_cnn",
        needs="image",
        reads=("filters", "layers"),
        description="A small convolutional network for pictures, or one described layer by layer.",
    ),
    "convnet": ModelSpec(
        f"{_MODELS}.pictures.build_convnet",
        needs="image",
        reads=("filters",),
        model={"filters": [], "hidden_units": []},
        train={
            "optimizer": {"kind": "adamw", "weight_decay": 0.01},
            "learning_rate": {"schedule": "cosine", "initial": 0.002},
            # The rate decays to 0 over these steps, so early stopping would miss the best epochs.
            "steps": 1000,
            # In smaller batches the noise of batch normalisation hides small differences.
            "batch_size": 32,
            "augment": {"shift": 0.1, "zoom": 0.1},
        },
        description="The default for pictures, good without tuning.",
    ),
    "ensemble": ModelSpec(
        f"{_MODELS}.tables.build_tabular",
        trainer=ENSEMBLE_TRAINER,
        reads=("members", *_BOOSTED_KEYS, "random", "extra"),
        tasks=("binary", "multiclass", "regression"),
        model=_TABULAR_MODEL,
        train=_TABULAR_TRAIN,
        small_operations=True,
        description="The default for tables and texts: a network, trees and a linear model.",
    ),
    "mlp": ModelSpec(
        f"{_MODELS}.tables.build_mlp",
        description="Dense layers over numbers and embedded categories.",
    ),
    "tabular": ModelSpec(
        f"{_MODELS}.tables.build_tabular",
        reads=("members",),
        model=_TABULAR_MODEL,
        train=_TABULAR_TRAIN,
        small_operations=True,
        description="The best single network for tables.",
    ),
    "text_cnn": ModelSpec(
        f"{_MODELS}.texts.build_text_cnn",
        needs="text",
        reads=("filters", "widths"),
        model={"filters": [100], "hidden_units": [], "dropout": 0.5, "embedding_size": 32},
        features={"text": {"encoding": "sequence"}},
        description="Convolutions over the words of texts.",
    ),
    "trees": ModelSpec(
        builder="",
        trainer=TREES_TRAINER,
        reads=("forest", *_BOOSTED_KEYS, "random", "extra"),
        refuses=("image", "text"),
        tasks=("binary", "multiclass", "regression"),
        description="Gradient-boosted trees, or a forest.",
    ),
    "wide_deep": ModelSpec(
        f"{_MODELS}.tables.build_wide_deep",
        description="A linear part added to an `mlp` (arXiv:1606.07792).",
    ),
    **{
        name: ModelSpec(
            f"{_MODELS}.pretrained.build_model",
            needs="image",
            reads=("weights", "transfer", "sync_batch_norm", "outputs"),
            model={"hidden_units": []},
            description=f"{network.constructor} for pictures, also with published weights.",
        )
        for name, network in NETWORKS.items()
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
        description="A deep Q-network (Mnih et al., 2015).",
    ),
}
"""The models of other families of tasks, by their name in `model.kind`; the families build them."""

PREDICTION, EMBEDDING = "prediction", "embedding"
"""The outputs that a pushed model may have, by their name in `model.outputs`."""

POOLER = "bert_pooler"
"""The name of BERT's layer whose output is the final vector of the first token."""

ENSEMBLE = "ensemble"
"""The name of the model that is the weighted mean of several models."""

NETWORK_MEMBER = "tabular"
"""The member of an ensemble that is trained in steps of an optimizer."""

LINEAR_MEMBER = "linear"
"""The linear model of an ensemble, which reads texts too."""

TEXT_NETWORK = "bag"
"""The default for text alone where no ensemble can be trained."""

AVERAGED_TREES = 300
"""The number of trees in a random forest and in extremely randomised trees."""

DEFAULT_NETWORKS = 8
"""The number of networks in `tabular`, and in the network of an ensemble."""

MemberName = Literal["tabular", "boosted", "random", "extra", "linear"]

MEMBERS: tuple[MemberName, ...] = get_args(MemberName)
"""The possible members of an ensemble: the network, gradient-boosted trees, a random forest,
extremely randomised trees and a linear model."""

DEFAULT_MEMBERS: tuple[MemberName, ...] = ("tabular", "boosted", "extra", "linear")
"""The members of an ensemble without `model.members`. A random forest takes twice the seconds of
`extra`, and beside the others it lowered the error of none of 44 tables by 1 %."""

AUTO = "auto"
"""The value of `model.kind` for a model that is chosen by the feature types."""


def kind_for(feature_types: Iterable[str], given: Collection[str] = (), obstacle: str = "") -> str:
    """Returns the kind of model that is the default for feature types.

    Args:
      feature_types: the types of all columns.
      given: the keys of `model` that have a value in the config; `filters` and `layers` select a
        `cnn`.
      obstacle: a key that excludes an ensemble, as `ensemble_obstacle` returns it; empty if an
        ensemble can be trained.
    """
    inputs = {kind for kind in feature_types if kind != "ignore"}
    if "image" in inputs:
        return "cnn" if {"filters", "layers"} & set(given) else "convnet"
    if not obstacle:
        return ENSEMBLE
    return TEXT_NETWORK if inputs == {"text"} else NETWORK_MEMBER


def unrestricted_models() -> list[str]:
    """Returns the names of the models that accept any features."""
    return [name for name, spec in ZOO.items() if not spec.needs and not spec.refuses]


def is_forest(kind: str) -> bool:
    """Returns whether a model is grown, such as trees, rather than trained in steps of an
    optimizer.
    """
    return kind in ZOO and not ZOO[kind].builder


def has_small_operations(kind: str) -> bool:
    """Returns whether the operations of a network's steps are too small for several threads."""
    return kind in ZOO and ZOO[kind].small_operations


def trainer_of(kind: str) -> str:
    """Returns the module whose `run_fn` and `train` train a kind of model."""
    return ZOO[kind].trainer if kind in ZOO else TRAINER


def load_trainer(kind: str) -> ModuleType:
    """Imports and returns the module that `trainer_of` names."""
    return import_module(trainer_of(kind))


def load_builder(kind: str) -> Callable[..., Any]:
    """Returns the builder with a name in the zoo or with an import path `module.function`.

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
    """The sizes of a BERT; its feed-forward layers have 4 times `hidden` units."""

    layers: PositiveInt = 2
    """The number of Transformer blocks: attention and a feed-forward layer."""
    hidden: PositiveInt = 128
    """The length of the vector of a token."""
    heads: PositiveInt = 2
    """The number of attention heads, which divide `hidden` evenly among them."""
    max_tokens: PositiveInt = 512
    """The most tokens per example, in all text columns together."""

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
"""The sizes of Turc et al. (2019, arXiv:1908.08962), and `base` of the BERT paper."""


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
    """Two-phase fine-tuning: first the head alone on a frozen network, then the network's last
    layers.
    """

    freeze: bool | None = None
    """Whether the network begins frozen, with its batch normalisation in inference mode. With
    `false`, all layers are trained from the first step. Default: `true` if `weights` are given,
    otherwise `false`."""
    unfreeze_after: PositiveInt | None = None
    """The epochs after which the network's last layers are trained as well, batch normalisation
    excepted; default: never."""
    unfreeze_layers: PositiveInt = 30
    """The number of last layers that `unfreeze_after` makes trainable."""
    learning_rate: float = Field(default=1e-5, gt=0)
    """The learning rate after `unfreeze_after`; before, `train.learning_rate` applies."""
    head: Literal["average", "flatten", "published"] | list[PositiveInt] | None = None
    """The first layers of the head. `average`: the mean of the feature map over all positions;
    `flatten`: all positions concatenated; `hidden_units` follow both. A list: the units of each
    dense layer after the mean, in place of `hidden_units`. `published`: the head that came with
    `weights`, with the classes of ImageNet; nothing is trained. Default: `average`."""

    @model_validator(mode="after")
    def _has_something_to_unfreeze(self) -> TransferSettings:
        if self.unfreeze_after and self.freeze is False:
            raise ValueError(
                f"unfreeze_after is {self.unfreeze_after}, but with freeze: false nothing is "
                "frozen; leave one of the two out"
            )
        return self


def _name_readers(key: str) -> Callable[[dict[str, Any]], None]:
    """Returns a function that puts the models that read a key before the key's description."""

    def change(schema: dict[str, Any]) -> None:
        specs = {**ZOO, **LEARNERS}
        readers = ", ".join(name for name, spec in specs.items() if key in spec.reads)
        schema["description"] = f"{readers}: {DOCSTRING}"

    return change


class ForestSettings(Settings):
    """A forest whose trees are averaged: a member of an `ensemble`, or `trees` of this kind."""

    column_share: float | None = Field(default=None, gt=0, le=1)
    """The share of the columns from which each condition is chosen. Default: for classes the square
    root of their number; for numbers half of them in `random`, all in `extra`."""
    min_examples: PositiveInt = 1
    """The fewest examples in a leaf; with many examples at least as many as keep the forest at
    600,000 nodes."""


ModelName = Annotated[
    str,
    NameOrPath(
        lambda: {
            AUTO: "The best kind of model for the features and the task.",
            **{name: spec.description for name, spec in (*ZOO.items(), *LEARNERS.items())},
            "gan": "For `task: generation`: networks of dense layers.",
            "dcgan": "For `task: generation`: networks of transposed convolutions.",
        }
    ),
]
"""The name of a model, or the import path of a builder."""


def _refuse_unread_keys(schema: dict[str, Any]) -> None:
    some_read = {key for spec in (*ZOO.values(), *LEARNERS.values()) for key in spec.reads}
    by_keys: dict[tuple[str, ...], list[str]] = {}
    for name, spec in ZOO.items():
        by_keys.setdefault(spec.reads, []).append(name)
    for reads, names in by_keys.items():
        refuse_keys(schema, names, dict.fromkeys(sorted(some_read - set(reads))))


class ModelSettings(Settings):
    """The model: one of the zoo with its sizes, or a builder of yours."""

    model_config = ConfigDict(json_schema_extra=_refuse_unread_keys)

    kind: ModelName = AUTO
    """The name of a model, or the import path of a function `build_model(problem, settings)` that
    returns an uncompiled tf_keras model. `auto`: `convnet` if a feature is an image (`cnn` if
    `filters` or `layers` are given), otherwise `ensemble`; `tabular`, or `bag` if all features are
    text, where the task, the strategy, the loss, `optimize` or `train.run_fn` excludes an
    ensemble."""
    size: AnyBertSizes = Field(default=None, json_schema_extra=_name_readers("size"))
    """`tiny`, `mini`, `small`, `base`, or a mapping with the sizes. Default: `tiny`, or the size of
    the model in `weights`."""
    filters: list[PositiveInt] = Field(default=[32], json_schema_extra=_name_readers("filters"))
    """the filters of each 3x3 convolution, which a 2x2 max-pooling follows; for `convnet` the
    filters of each stage of two convolutions, by default from 16 up to 128, depending on the size
    of the picture; for `text_cnn` the filters of each width, by default 100."""
    layers: list[AnyPictureLayer] | None = Field(
        default=None, min_length=1, json_schema_extra=_name_readers("layers")
    )
    """the layers over the pictures, in order, in place of `filters`: `{conv: 256}`, `{pool: 2}`,
    `batch_norm` or `{dropout: 0.25}`; the last one's output is flattened and passed to the
    `hidden_units`."""
    widths: list[PositiveInt] = Field(default=[3, 4, 5], json_schema_extra=_name_readers("widths"))
    """the widths of the filters, in consecutive tokens."""
    members: PositiveInt | list[MemberName] = Field(
        default=DEFAULT_NETWORKS, json_schema_extra=_name_readers("members")
    )
    """the number of networks in `tabular`, which share most weights and whose predictions are
    averaged; for `ensemble` also a list of the models to train, by default `[tabular, boosted,
    extra, linear]`."""
    forest: Literal["boosted", "random", "extra"] = Field(
        default="boosted", json_schema_extra=_name_readers("forest")
    )
    """gradient-boosted trees, a random forest, or extremely randomised trees."""
    trees: PositiveInt = Field(default=1000, json_schema_extra=_name_readers("trees"))
    """the most trees per output; early stopping may end the training with fewer. Default of the
    forests `random` and `extra`: 300 trees for all outputs."""
    max_depth: PositiveInt = Field(default=6, json_schema_extra=_name_readers("max_depth"))
    """the most conditions between the root of a tree and a leaf."""
    shrinkage: float = Field(default=0.1, gt=0, le=1, json_schema_extra=_name_readers("shrinkage"))
    """the factor on each tree's contribution; the smaller it is, the more trees are needed."""
    subsample: float = Field(default=0.7, gt=0, le=1, json_schema_extra=_name_readers("subsample"))
    """the share of the examples from which each boosted tree is grown."""
    leaf_l2: float = Field(default=1.0, ge=0, json_schema_extra=_name_readers("leaf_l2"))
    """the L2 regularisation of leaf values, which shrinks leaves with few examples."""
    column_share: float = Field(
        default=0.5, gt=0, le=1, json_schema_extra=_name_readers("column_share")
    )
    """the share of the columns from which each condition of boosted trees is chosen."""
    random: ForestSettings = Field(
        default=ForestSettings(), json_schema_extra=_name_readers("random")
    )
    """the random forest."""
    extra: ForestSettings = Field(
        default=ForestSettings(), json_schema_extra=_name_readers("extra")
    )
    """the extremely randomised trees."""
    weights: str | None = Field(default=None, json_schema_extra=_name_readers("weights"))
    """the initial weights of the network: `imagenet`, a file of Keras's weights (.h5, .weights.h5,
    .keras), or the folder of an exported or pushed model of the same kind; for `bert` a name on
    Hugging Face's hub, such as `bert-base-uncased`, or a folder with its `config.json`, `vocab.txt`
    and `model.safetensors`. Default: random weights."""
    transfer: TransferSettings | None = Field(
        default=None, json_schema_extra=_name_readers("transfer")
    )
    """how the network is fine-tuned; default: all layers are trained from the first step."""
    sync_batch_norm: bool = Field(default=False, json_schema_extra=_name_readers("sync_batch_norm"))
    """whether batch normalisation uses the mean and variance of the examples of all replicas."""
    outputs: list[Literal["prediction", "embedding"]] = Field(
        default=["prediction"], min_length=1, json_schema_extra=_name_readers("outputs")
    )
    """the outputs of the pushed model: `prediction`, what the task predicts, and `embedding`, the
    vector that the network computes of a text or picture and that its head takes. With
    `[embedding]` the head is trained and evaluated, too."""
    double: bool = Field(default=True, json_schema_extra=_name_readers("double"))
    """whether the online network chooses the action and the target network gives its value, as in
    double DQN (van Hasselt et al., 2016)."""
    dueling: bool = Field(default=True, json_schema_extra=_name_readers("dueling"))
    """whether the network estimates the value of an observation and the advantages of the actions
    separately (Wang et al., 2016)."""
    prioritised: bool = Field(default=True, json_schema_extra=_name_readers("prioritised"))
    """whether transitions are sampled by the size of their last error (Schaul et al., 2016)."""
    n_step: PositiveInt = Field(default=3, json_schema_extra=_name_readers("n_step"))
    """the number of rewards that a target sums up before the value of the observation after them.
    """
    hidden_units: list[PositiveInt] = [64]
    """The units of each dense layer before the output. Default of `tabular`: 128 and 128; of `bag`,
    `text_cnn`, `bert`, `convnet` and the pretrained image networks: no dense layers; of `dqn`: 256
    and 256."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """The share of the activations that are dropped before the output layer during training; for
    `tabular` after each dense layer, by default 0.1."""
    embedding_size: PositiveInt = 8
    """The length of the vector in which a value of a categorical feature is embedded."""
    options: dict[str, Any] = {}
    """Any settings of a builder of yours, which reads them as `settings.options`."""

    @model_validator(mode="before")
    @classmethod
    def _averaged_forests_have_fewer_trees(cls, values: Any) -> Any:
        is_averaged = isinstance(values, Mapping) and values.get("forest") in ("random", "extra")
        return {"trees": AVERAGED_TREES, **values} if is_averaged else values

    @field_validator("members")
    @classmethod
    def _are_different(cls, members: int | list[MemberName]) -> int | list[MemberName]:
        if isinstance(members, list) and not members:
            raise ValueError(f"found no member; name at least one of {', '.join(MEMBERS)}")
        if isinstance(members, list) and len(set(members)) < len(members):
            twice = next(name for name in members if members.count(name) > 1)
            raise ValueError(f"found {twice} twice; name each member once")
        return members

    @property
    def ensemble_members(self) -> tuple[MemberName, ...]:
        """The kinds of the members of an `ensemble`."""
        return DEFAULT_MEMBERS if isinstance(self.members, int) else tuple(self.members)

    def members_that_read(self, columns: bool, bags: bool) -> list[str]:
        """Returns the members of an `ensemble` that can read the data.

        Args:
          columns: whether there are numbers or categories, which all members read.
          bags: whether there are bags of n-grams, which trees do not read.
        """
        if columns:
            return list(self.ensemble_members)
        able = {NETWORK_MEMBER, LINEAR_MEMBER} if bags else {NETWORK_MEMBER}
        return [name for name in self.ensemble_members if name in able]

    @property
    def networks(self) -> int:
        """The number of networks in `tabular` that share most weights."""
        return self.members if isinstance(self.members, int) else DEFAULT_NETWORKS

    @property
    def is_custom(self) -> bool:
        """Whether `kind` is an import path."""
        return "." in self.kind

    @property
    def has_published_head(self) -> bool:
        """Whether the network predicts the classes that its published weights were trained for."""
        return self.transfer is not None and self.transfer.head == "published"

    @property
    def begins_frozen(self) -> bool:
        """Whether training begins with the head alone, on a frozen network."""
        if self.transfer is None:
            return False
        return bool(self.weights) if self.transfer.freeze is None else self.transfer.freeze

    @property
    def builder(self) -> str | None:
        """The import path of the user's builder; None for a model of the zoo."""
        return self.kind if self.is_custom else None
