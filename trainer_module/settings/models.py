"""The registry of models. A builder, `build_model(problem, settings)`, returns a tf_keras model.

What is grown instead of trained in steps, as trees are, has no builder.

Finding a builder imports TensorFlow only with the builder's own module.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer_module.errors import TrainingError
from trainer_module.own_code import load_own


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
    tuned: Mapping[str, Any] = field(default_factory=dict)
    """Likewise, of the section `train` where `model.weights` were trained before."""


_MODELS = "trainer_module.families.supervised.models"
ZOO: dict[str, ModelSpec] = {
    "bag": ModelSpec(
        f"{_MODELS}.bag.build_model",
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
        f"{_MODELS}.bert.model.build_model",
        needs="text",
        reads=("size", "weights"),
        model={"dropout": 0.1, "hidden_units": []},
        features={"text": {"tokens": "wordpiece", "encoding": "sequence", "vocabulary_size": 8000}},
        train={
            "optimizer": {"kind": "adamw", "weight_decay": 0.01, "clip_norm": 1.0},
            "learning_rate": {"schedule": "linear", "initial": 5e-4},
            "batch_size": {"at_most": 32},
            "steps": 2000,
            "early_stopping": {"patience": 6},
        },
        tuned={
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
    "cnn": ModelSpec(f"{_MODELS}.cnn.build_model", needs="image", reads=("filters",)),
    "convnet": ModelSpec(
        f"{_MODELS}.convnet.build_model",
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
    "mlp": ModelSpec(f"{_MODELS}.mlp.build_model"),
    "tabular": ModelSpec(
        f"{_MODELS}.tabular.build_model",
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
        f"{_MODELS}.text_cnn.build_model",
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
    "wide_deep": ModelSpec(f"{_MODELS}.wide_deep.build_model"),
    **{
        name: ModelSpec(
            f"{_MODELS}.pretrained.model.build_model",
            needs="image",
            reads=("weights", "transfer", "sync_batch_norm"),
            model={"hidden_units": []},
        )
        for name in NETWORKS
    },
}
"""The models by the name in `model.kind`."""

AUTO = "auto"
"""The kind of a model that follows from the features."""


def kind_for(feature_types: Iterable[str], given: Collection[str] = ()) -> str:
    """The model for features of these types, where the config names none.

    Args:
      feature_types: of all columns.
      given: the keys of `model` that the config gives; `filters` are those of a `cnn`.
    """
    inputs = {kind for kind in feature_types if kind != "ignore"}
    if "image" in inputs:
        return "cnn" if "filters" in given else "convnet"
    return "bag" if inputs == {"text"} else "tabular"


def undemanding_models() -> list[str]:
    """The names of the models that any feature will do for."""
    return [name for name, spec in ZOO.items() if not spec.needs and not spec.refuses]


def is_grown(kind: str) -> bool:
    """Whether a model is not trained in steps of an optimizer, over a network's weights."""
    return kind in ZOO and not ZOO[kind].builder


def load_builder(kind: str) -> Callable[..., Any]:
    """The builder of a zoo name or of an import path `module.function`.

    Raises:
      TrainingError: if `kind` is neither, or the module or function cannot be found.
    """
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
