"""Keras callbacks of the user's."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import tf_keras

from trainer_module.errors import TrainingError
from trainer_module.own_code import load_own
from trainer_module.settings import TrainerSettings


def make_callbacks(settings: TrainerSettings) -> list[tf_keras.callbacks.Callback]:
    """New callbacks, in the order of `train.callbacks`.

    Args:
      settings: what a class or function of the user's is called with, unless it needs nothing.

    Raises:
      TrainingError: if a path leads nowhere, or what it gives is no callback of tf_keras.
    """
    return [_make(path, settings) for path in settings.train.callbacks]


def _make(path: str, settings: TrainerSettings) -> tf_keras.callbacks.Callback:
    make = load_own("train.callbacks", path)
    made = make(settings) if _needs_settings(make) else make()
    if not isinstance(made, tf_keras.callbacks.Callback):
        raise TrainingError(
            f"train.callbacks {path!r} gives a {type(made).__module__}.{type(made).__qualname__}; "
            "right is a class or function that gives a tf_keras.callbacks.Callback."
        )
    return made


def _needs_settings(make: Callable[..., Any]) -> bool:
    """Whether there is an argument without a default."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(
        parameter.default is inspect.Parameter.empty and parameter.kind in kinds
        for parameter in inspect.signature(make).parameters.values()
    )
