"""The registry of models. A builder, `build_model(problem, settings)`, returns a tf_keras model.

What is grown instead of trained in steps, as trees are, has no builder: `trainer_module/trees/`.

Finding a builder imports TensorFlow only with the builder's own module.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer_module.errors import TrainingError
from trainer_module.own_code import load_own


@dataclass(frozen=True)
class ModelSpec:
    """What has to be known of a model before its builder is imported."""

    builder: str
    """Import path; empty if the model is grown."""
    needs: str = ""
    """The type of a feature without which it cannot be built; empty if any feature will do."""
    reads: tuple[str, ...] = ()
    """Keys of the section `model` that not every model reads."""
    refuses: str = ""
    """The type of a feature that it cannot take."""
    tasks: tuple[str, ...] = ()
    """The tasks that it can do, if they have no options; empty if any task will do."""
    model: Mapping[str, Any] = field(default_factory=dict)
    """What it takes where the config leaves keys of the section `model` out."""
    train: Mapping[str, Any] = field(default_factory=dict)
    """Likewise, of the section `train`."""


_MODELS = "trainer_module.models"
ZOO: dict[str, ModelSpec] = {
    "cnn": ModelSpec(f"{_MODELS}.cnn.build_model", needs="image", reads=("filters",)),
    "mlp": ModelSpec(f"{_MODELS}.mlp.build_model"),
    "tabular": ModelSpec(
        f"{_MODELS}.tabular.build_model",
        reads=("members",),
        model={"hidden_units": [128, 128], "dropout": 0.1},
        train={
            "optimizer": {"kind": "adamw", "weight_decay": 0.01},
            "learning_rate": {"schedule": "cosine", "initial": "auto"},
            "batch_size": {"at_most": 256},
            "steps": 2000,
            "early_stopping": {"patience": 6},
        },
    ),
    "trees": ModelSpec(
        builder="",
        reads=("trees", "max_depth", "shrinkage"),
        refuses="image",
        tasks=("binary", "multiclass", "regression"),
    ),
    "wide_deep": ModelSpec(f"{_MODELS}.wide_deep.build_model"),
}
"""The models by the name in `model.kind`."""

AUTO = "auto"
"""The kind of a model that follows from the features."""


def kind_for(feature_types: Iterable[str]) -> str:
    """The model for features of these types, where the config names none."""
    return "cnn" if "image" in feature_types else "tabular"


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
