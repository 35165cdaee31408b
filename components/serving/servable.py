"""What a server asks of a model, however that answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from trainer_module.export.interface import ModelInterface, RawColumn

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class FeatureColumn(RawColumn):
    """A transformed feature, which requests bring as they would bring a column."""

    shape: tuple[int, ...] = ()
    """Of one row; its product is the width."""


class Servable(Protocol):
    """A version that answers; may be asked by several threads at once.

    What it is asked for raises DataError where the model refuses it.
    """

    @property
    def folder(self) -> Path:
        """Of the version."""

    @property
    def interface(self) -> ModelInterface:
        """What requests have to bring."""

    @property
    def platform(self) -> str:
        """What it runs on, as Triton calls it."""

    @property
    def takes_examples(self) -> bool:
        """Whether it may be asked by serialised tf.Examples, too."""

    @property
    def outputs(self) -> dict[str, tuple[str, tuple[int | None, ...]]]:
        """The dtype and the shape of what it answers, by name."""

    def predict(self, columns: Mapping[str, np.ndarray]) -> Arrays:
        """Answers by name for tensors by the names of requests, [batch, ...] each."""

    def predict_examples(self, columns: Mapping[str, np.ndarray]) -> Arrays:
        """The same for serialised tf.Examples, which are the one column there is."""
