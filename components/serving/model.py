"""A pushed version, loaded: what its signatures answer. Imports TensorFlow where it is used."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from components.serving.pictures import measure_pictures
from components.serving.servable import Arrays
from components.serving.signatures import Signatures
from components.serving.variants import open_named
from trainer_module.errors import DataError, shorten
from trainer_module.export.interface import ModelInterface, read_interface
from trainer_module.export.variants.running import RunnableVariant
from trainer_module.features.pixels import PixelBudget

_BUDGET = PixelBudget()
_PLACES = re.compile(
    r"^Graph execution error:|^Detected at node .*|^<stack traces unavailable>"
    r"|^\t? *\[\[.*\]\]|\{\{function_node [^}]*\}\}|\[Op:[^\]]*\]"
)

RAW, EXAMPLES = "serving_raw", "serving_default"
"""The signatures that serve: of a tensor per column, and of serialised tf.Examples."""
TRANSFORMS = {RAW: "serving_raw_transform", EXAMPLES: "serving_transform"}
"""The signatures that take the same, and give what a variant takes."""
EXAMPLES_INPUT = "examples"
"""The one input of the latter."""


@dataclass(frozen=True, eq=False)
class Model:
    """A version that answers; may be asked by several threads at once.

    What it is asked for raises DataError where the model refuses it, such as a damaged picture. Of
    pictures no more are decoded at a time than memory has room for.
    """

    folder: Path
    interface: ModelInterface
    _signatures: Signatures
    variant: RunnableVariant | None = None
    """Answers in place of the network, for what the transform graph makes of the columns."""

    @property
    def platform(self) -> str:
        """What it runs on, as Triton calls it."""
        return "tensorflow_savedmodel"

    @property
    def takes_examples(self) -> bool:
        """Whether it has a signature for them."""
        return self._signatures.takes(EXAMPLES, EXAMPLES_INPUT)

    @property
    def outputs(self) -> dict[str, tuple[str, tuple[int | None, ...]]]:
        """The dtype and the shape of what it answers, by name."""
        return self._signatures.outputs(RAW)

    def predict(self, columns: Mapping[str, np.ndarray]) -> Arrays:
        """Answers by name for tensors by the names of requests, [batch, ...] each."""
        return self._ask(RAW, columns)

    def predict_examples(self, columns: Mapping[str, np.ndarray]) -> Arrays:
        """The same for serialised tf.Examples, which are the one column there is."""
        return self._ask(EXAMPLES, columns)

    def _ask(self, signature: str, columns: Mapping[str, np.ndarray]) -> Arrays:
        measured = measure_pictures(columns, self.interface, are_examples=signature == EXAMPLES)
        if measured is None:
            return self._ask_at_once(signature, columns)
        parts = []
        for part, pixels in measured.portions():
            with _BUDGET.take(pixels):
                parts.append(self._ask_at_once(signature, part))
        if len(parts) == 1:
            return parts[0]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _ask_at_once(self, signature: str, columns: Mapping[str, np.ndarray]) -> Arrays:
        import tensorflow as tf

        asked = signature if self.variant is None else TRANSFORMS[signature]
        try:
            found = self._signatures.ask(asked, columns)
        except tf.errors.InvalidArgumentError as error:
            raise DataError(f"the model cannot take the rows: {_reason(error.message)}") from error
        except UnicodeDecodeError as error:
            # Of TensorFlow's message, which quotes the bytes that it was given.
            said = error.object.decode(errors="backslashreplace")
            raise DataError(f"the model cannot take the rows: {_reason(said)}") from error
        return found if self.variant is None else self.variant.answer(self.variant.predict(found))


def _reason(message: str) -> str:
    """What is wrong, of a message of TensorFlow's: not where in the graph it was found."""
    lines = (_PLACES.sub("", line).strip() for line in message.splitlines())
    said = next((line for line in lines if line), message)
    return "".join(sign if sign.isprintable() else "?" for sign in shorten(said))


def load_model(folder: Path, variant: str | None = None) -> Model:
    """Loads a version, and a variant of it that answers in its place.

    Args:
      folder: of the version.
      variant: its name; None for the SavedModel itself.

    Raises:
      ConfigError: the version has no such variant.
      DataError: one is damaged, no version of ours, or lacks the variant's runtime.
    """
    interface = read_interface(folder)
    runnable = None
    if variant is not None:
        runnable = open_named(folder, variant, interface)
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    has_pictures = any(column.picture for column in interface.columns)
    try:
        return Model(folder, interface, Signatures(folder, has_pictures), runnable)
    except Exception as error:  # TensorFlow raises all sorts for files that are cut off.
        said = shorten(error)
        raise DataError(
            f"{folder} cannot be loaded ({type(error).__name__}: {said}): it is damaged; push it"
            " again, or go back by `rollback`."
        ) from error
