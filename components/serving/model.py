"""A pushed version, loaded: what a server asks of it, the SavedModel, and a variant in its place.

Imports TensorFlow where it is used.
"""

from __future__ import annotations

import gc
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from components.compat.tensorflow import make_callable
from components.pusher.variants import find_variant
from components.serving.requests import (
    EXAMPLES,
    EXAMPLES_INPUT,
    RAW,
    Arrays,
    join_rows,
    measure_pictures,
)
from trainer_module.errors import DataError, shorten
from trainer_module.export.interface import ModelInterface, RawColumn, RawDtype, read_interface
from trainer_module.export.loading import with_operations
from trainer_module.export.variants.manifest import Format, VariantTensor
from trainer_module.export.variants.running import RunnableVariant, open_variant
from trainer_module.features.pixels import PixelBudget
from trainer_module.machine import count_cores


@dataclass(frozen=True)
class FeatureColumn(RawColumn):
    """A transformed feature, which requests bring as they would bring a column."""

    shape: tuple[int, ...] = ()
    """Of one row; its product is the width."""


_KERAS = "tf_keras"


def import_tensorflow() -> None:
    """Imports it without Keras, which no signature needs: a fifth less to import.

    Meanwhile no garbage is collected, as imports leave none. Whoever needs Keras later, imports it
    as ever.
    """
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if "tensorflow" in sys.modules:
        return
    was_enabled, is_barred = gc.isenabled(), _KERAS not in sys.modules
    gc.disable()
    if is_barred:
        # TensorFlow does without what cannot be imported.
        sys.modules[_KERAS] = None  # type: ignore[assignment]
    try:
        import tensorflow  # noqa: F401
    finally:
        if is_barred:
            del sys.modules[_KERAS]
        gc.freeze()
        if was_enabled:
            gc.enable()


_TAGS = ["serve"]


@dataclass(frozen=True)
class _Call:
    """A signature that can be called."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    run: Any


class Signatures:
    """The signatures of one SavedModel; may be asked by several threads at once.

    They run in a session, as TensorFlow Serving runs them. A signature that `tf.saved_model.load`
    gives costs a millisecond of Python and of hand-overs between threads for each call of a small
    network; a session costs a third of that, and holds Python's lock for less of it.
    """

    def __init__(self, folder: Path, is_parallel: bool = False) -> None:
        """Loads the SavedModel.

        Args:
          folder: of the SavedModel.
          is_parallel: whether operations of a call that do not depend on each other run side by
            side. That pays for pictures, which are decoded one by one.

        Raises:
          Exception: as TensorFlow raises it, which is all sorts of things for damaged files.
        """
        self._session, self._signatures = with_operations(lambda: _load(folder))
        self._is_parallel = is_parallel
        self._calls: dict[str, _Call] = {}

    def outputs(self, name: str) -> dict[str, tuple[str, tuple[int | None, ...]]]:
        """Returns the dtype and the shape of what a signature gives, by name."""
        import tensorflow as tf

        tensors = self._signatures[name].outputs
        return {
            output: (
                tf.as_dtype(tensors[output].dtype).name,
                tuple(tf.TensorShape(tensors[output].tensor_shape)),
            )
            for output in sorted(tensors)
        }

    def takes(self, name: str, *inputs: str) -> bool:
        """Returns whether there is a signature that takes these inputs and no others."""
        return name in self._signatures and {*self._signatures[name].inputs} == {*inputs}

    def ask(self, name: str, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """What a signature gives for inputs by name.

        Raises:
          tf.errors.OpError: the graph refuses them.
        """
        call = self._calls.get(name)
        if call is None:  # Of two threads that come here at once, both make it.
            call = self._calls[name] = self._make_call(name)
        found = call.run(*(inputs[name] for name in call.inputs))
        return dict(zip(call.outputs, found, strict=True))

    def _make_call(self, name: str) -> _Call:
        signature = self._signatures[name]
        inputs, outputs = tuple(signature.inputs), tuple(sorted(signature.outputs))
        feeds = [signature.inputs[name].name for name in inputs]
        fetches = [signature.outputs[name].name for name in outputs]
        run = make_callable(self._session, feeds, fetches, self._is_parallel)
        return _Call(inputs, outputs, run)


def _load(folder: Path) -> tuple[Any, dict[str, Any]]:
    """Returns a session with the variables, and the signatures by name."""
    import tensorflow as tf

    session = tf.compat.v1.Session(graph=tf.Graph())
    with session.graph.as_default(), _without_advice():
        meta = tf.compat.v1.saved_model.load(session, _TAGS, str(folder))
    return session, dict(meta.signature_def)


@contextmanager
def _without_advice() -> Iterator[None]:
    """TensorFlow advises `tf.saved_model.load` to whoever uses a session."""
    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def open_named(version: Path, name: str, interface: ModelInterface) -> RunnableVariant:
    """Loads a variant, which has to name the classes that the version does, in their order.

    Args:
      version: its folder.
      name: of the variant.
      interface: of the version.

    Raises:
      ConfigError: the version has no such variant.
      DataError: it is damaged, names other classes, or its runtime is not there.
    """
    opened = open_variant(find_variant(version, name), count_cores())
    classes = opened.variant.classes
    if classes and interface.classes and tuple(classes) != tuple(interface.classes):
        raise DataError(
            f"the variant {name} of {version} names the classes {', '.join(classes)}, and the"
            f" version {', '.join(interface.classes)}: push it again."
        )
    return opened


_BUDGET = PixelBudget()
_PLACES = re.compile(
    r"^Graph execution error:|^Detected at node .*|^<stack traces unavailable>"
    r"|^\t? *\[\[.*\]\]|\{\{function_node [^}]*\}\}|\[Op:[^\]]*\]"
)

TRANSFORMS = {RAW: "serving_raw_transform", EXAMPLES: "serving_transform"}
"""The signatures that take the same, and give what a variant takes."""


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
        """Returns the same for serialised tf.Examples, which are the one column there is."""
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
        return join_rows(parts)

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


_PLATFORMS: dict[Format, str] = {"litert": "litert_tflite", "onnx": "onnxruntime_onnx"}


@dataclass(frozen=True, eq=False)
class TransformedModel:
    """A variant of a version, asked for what Transform has made of the columns."""

    folder: Path
    interface: ModelInterface
    variant: RunnableVariant
    outputs: dict[str, tuple[str, tuple[int | None, ...]]]
    takes_examples: bool = False

    @property
    def platform(self) -> str:
        """What it runs on, as Triton calls it."""
        return _PLATFORMS[self.variant.variant.format]

    def predict(self, columns: Mapping[str, np.ndarray]) -> Arrays:
        """Answers by name for features by name, of [batch] or [batch, width] each."""
        features = {
            tensor.name: columns[tensor.name]
            .reshape(-1, *_shape(tensor))
            .astype(tensor.dtype, copy=False)
            for tensor in self.variant.variant.inputs
        }
        return self.variant.answer(self.variant.predict(features))

    def predict_examples(self, columns: Mapping[str, np.ndarray]) -> Arrays:
        """Raises DataError: tf.Examples hold columns, which only TensorFlow transforms."""
        raise DataError(
            f"this server takes transformed features ({', '.join(self.interface.by_request)}), and"
            " no tf.Examples: ask one that was started without --transformed."
        )


Servable = Model | TransformedModel
"""A version that answers; may be asked by several threads at once."""


def load_transformed(version: Path, variant: str) -> TransformedModel:
    """Loads a variant of a version, and nothing else of it.

    Args:
      version: its folder.
      variant: its name.

    Raises:
      ConfigError: the version has no such variant.
      DataError: it is damaged, or its runtime is not there.
    """
    given = read_interface(version)
    opened = open_named(version, variant, given)
    inputs = opened.variant.inputs
    interface = ModelInterface(
        tuple(_to_column(tensor) for tensor in inputs),
        given.label,
        given.label_dtype,
        given.task,
        classes=given.classes,
    )
    row = {t.name: np.zeros((1, *_shape(t)), t.dtype) for t in inputs}
    answers = opened.answer(opened.predict(row))
    outputs = {name: _describe(values) for name, values in sorted(answers.items())}
    return TransformedModel(version, interface, opened, outputs)


def _shape(tensor: VariantTensor) -> tuple[int, ...]:
    """Of one row, of which every size is known."""
    return tuple(size or 1 for size in tensor.shape[1:])


def _to_column(tensor: VariantTensor) -> FeatureColumn:
    is_whole = np.issubdtype(np.dtype(tensor.dtype), np.integer)
    dtype: RawDtype = "int64" if is_whole else "float32"
    shape = _shape(tensor)
    return FeatureColumn(
        tensor.name, tensor.name, dtype, is_whole, int(np.prod(shape)), shape=shape
    )


def _describe(values: np.ndarray) -> tuple[str, tuple[int | None, ...]]:
    dtype = "string" if values.dtype == object else values.dtype.name
    return dtype, (None, *values.shape[1:])
