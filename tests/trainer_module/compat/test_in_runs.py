"""What is changed of libraries is called where a training needs it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from trainer_data import Transformed

from trainer_module.compat import keras, model_optimization
from trainer_module.families.supervised import losses
from trainer_module.trainer import run_fn
from trainer_module.training import compression, optimizers


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each has been called."""
    counts: Counter[str] = Counter()

    def count(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            counts[name] += 1
            return original(*arguments, **options)

        monkeypatch.setattr(owner, name, counted)

    for owner, name in (
        (keras.DenseGradients, "_deduplicate_sparse_grad"),
        (keras.SharedFactors, "_make_factors"),
        (keras.AfterUpdates, "_distributed_apply_gradients_fn"),
        (keras.AfterUpdates, "forget_saved"),
        (keras.RatesByVariable, "_apply_weight_decay"),
        (optimizers, "let_replicas_share_rate"),
        (losses, "logits_of"),
        (losses, "change_compared"),
        (compression, "layers_within"),
        (compression, "own_weights"),
        (compression, "is_graph_network"),
        (model_optimization, "mask_maker"),
        (model_optimization, "kernels_by_layer"),
        (model_optimization, "wrapped_weights"),
    ):
        count(owner, name)
    return counts


def test_a_training_of_a_table(trips: Transformed, tmp_path: Path, calls: Counter[str]) -> None:
    train = {
        "epochs": 1,
        "optimizer": "adamw",
        "learning_rate": {"schedule": "cosine", "initial": 0.01},
        "class_weights": "balanced",
    }
    run_fn(trips.fn_args(tmp_path / "shared", train=train))
    assert {*calls} == {
        "_deduplicate_sparse_grad",
        "_make_factors",
        "let_replicas_share_rate",
        "logits_of",
    }


def test_a_training_of_pictures_that_is_compressed(
    shades: Transformed, tmp_path: Path, calls: Counter[str]
) -> None:
    train = {
        "epochs": 1,
        "augment": {"mixup": 0.2},
        "optimizer": {"kind": "adamw", "layer_decay": 0.9},
    }
    optimize = {"prune": {}, "quantize": "qat"}
    run_fn(shades.fn_args(tmp_path, train=train, optimize=optimize))
    assert not calls["_make_factors"], "it would be one rate for all"
    assert {*calls} >= {
        "_distributed_apply_gradients_fn",
        "_apply_weight_decay",
        "forget_saved",
        "change_compared",
        "layers_within",
        "own_weights",
        "is_graph_network",
        "mask_maker",
        "kernels_by_layer",
        "wrapped_weights",
    }
