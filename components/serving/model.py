"""Loading of a pushed version for a server: the SavedModel, or a variant that replaces its network.

TensorFlow is imported only by the functions that use it.
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

from components.compat.tensorflow import make_callable, without_import_messages
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
from trainer_module.typed_words import typed_command


@dataclass(frozen=True)
class FeatureColumn(RawColumn):
    """A transformed feature. Requests contain features in place of columns with `--transformed`."""

    shape: tuple[int, ...] = ()
    """The shape of the feature in a row. The product of its sizes is the width."""


_KERAS = "tf_keras"
_LOG_LEVEL = "3"
"""The level of TensorFlow's C++ messages: only fatal errors. On a machine without a GPU, each
process would write that CUDA does not start. All other errors reach Python as exceptions."""


def import_tensorflow() -> None:
    """Imports TensorFlow without Keras, which saves a fifth of the time. Signatures need no Keras.

    Garbage collection is off during the import, as imports create hardly any garbage. Keras can
    still be imported later.
    """
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", _LOG_LEVEL)
    if "tensorflow" in sys.modules:
        return
    was_enabled, hides_keras = gc.isenabled(), _KERAS not in sys.modules
    gc.disable()
    if hides_keras:
        # TensorFlow continues without Keras if Keras cannot be imported.
        sys.modules[_KERAS] = None  # type: ignore[assignment]
    try:
        with without_import_messages():
            import tensorflow  # noqa: F401
    finally:
        if hides_keras:
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
    """The signatures of a SavedModel. Several threads may call them at the same time.

    The signatures run in a session, as in TensorFlow Serving. For a small network, a call of a
    signature from `tf.saved_model.load` takes a millisecond in Python code and switches between
    threads. A call in a session takes a third of a millisecond, and holds Python's lock for a
    smaller part of that time.
    """

    def __init__(self, folder: Path, is_parallel: bool = False) -> None:
        """Loads the SavedModel of a folder into a session.

        Args:
          is_parallel: whether independent operations of a call run in parallel. This is faster for
            pictures, as each picture is decoded by an operation of its own.

        Raises:
          Exception: any error of TensorFlow, whose type varies for damaged files.
        """
        self._session, self._signatures = with_operations(lambda: _load(folder))
        self._is_parallel = is_parallel
        self._calls: dict[str, _Call] = {}

    def outputs(self, name: str) -> dict[str, tuple[str, tuple[int | None, ...]]]:
        """Returns the dtype and the shape of each output of a signature, by name."""
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
        """Returns whether a signature exists and has exactly these inputs."""
        return name in self._signatures and {*self._signatures[name].inputs} == {*inputs}

    def call(self, name: str, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """Calls a signature with inputs by name, and returns its outputs by name.

        Raises:
          tf.errors.OpError: the graph rejects the inputs.
        """
        call = self._calls.get(name)
        if call is None:  # Two threads may both create the call, which is harmless.
            call = self._calls[name] = self._make_call(name)
        values = call.run(*(inputs[name] for name in call.inputs))
        return dict(zip(call.outputs, values, strict=True))

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
    """Silences TensorFlow's advice to use `tf.saved_model.load` in place of a session."""
    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def load_variant(version: Path, name: str, interface: ModelInterface) -> RunnableVariant:
    """Loads a variant, and checks that it has the same classes as the version in the same order.

    Raises:
      ConfigError: the version has no variant of that name.
      DataError: the variant is damaged, has other classes, or its runtime is not installed.
    """
    opened = open_variant(find_variant(version, name), count_cores())
    classes = opened.variant.classes
    if classes and interface.classes and tuple(classes) != tuple(interface.classes):
        raise DataError(
            f"the variant {name} of {version} has the classes {', '.join(classes)}, but the"
            f" version has {', '.join(interface.classes)}: push the version again."
        )
    return opened


_PIXEL_BUDGET = PixelBudget()
_GRAPH_LOCATIONS = re.compile(
    r"^Graph execution error:|^Detected at node .*|^<stack traces unavailable>"
    r"|^\t? *\[\[.*\]\]|\{\{function_node [^}]*\}\}|\[Op:[^\]]*\]"
)

TRANSFORMS = {RAW: "serving_raw_transform", EXAMPLES: "serving_transform"}
"""The signatures that transform the inputs of each serving signature to the inputs of a variant."""


@dataclass(frozen=True, eq=False)
class Model:
    """A loaded version, which several threads may call at the same time.

    The methods raise DataError for rows that the model rejects, such as damaged pictures. Pictures
    are decoded in parts, so that the decoded pictures fit into memory.
    """

    folder: Path
    interface: ModelInterface
    _signatures: Signatures
    variant: RunnableVariant | None = None
    """The variant that predicts from the transformed features, or None for the model's network."""

    @property
    def platform(self) -> str:
        """The platform of the model, by the name that Triton uses."""
        return "tensorflow_savedmodel"

    @property
    def takes_examples(self) -> bool:
        """Whether the model has a signature for serialised tf.Examples."""
        return self._signatures.takes(EXAMPLES, EXAMPLES_INPUT)

    @property
    def outputs(self) -> dict[str, tuple[str, tuple[int | None, ...]]]:
        """The dtype and the shape of each output, by name."""
        return self._signatures.outputs(RAW)

    def predict(self, columns: Mapping[str, np.ndarray]) -> Arrays:
        """Returns the outputs by name for tensors by request name, [batch, ...] each."""
        return self._predict(RAW, columns)

    def predict_examples(self, columns: Mapping[str, np.ndarray]) -> Arrays:
        """Returns the outputs by name for serialised tf.Examples, which are the only input."""
        return self._predict(EXAMPLES, columns)

    def _predict(self, signature: str, columns: Mapping[str, np.ndarray]) -> Arrays:
        measured = measure_pictures(columns, self.interface, are_examples=signature == EXAMPLES)
        if measured is None:
            return self._predict_part(signature, columns)
        parts = []
        for part, pixels in measured.portions():
            with _PIXEL_BUDGET.take(pixels):
                parts.append(self._predict_part(signature, part))
        if len(parts) == 1:
            return parts[0]
        return join_rows(parts)

    def _predict_part(self, signature: str, columns: Mapping[str, np.ndarray]) -> Arrays:
        import tensorflow as tf

        name = signature if self.variant is None else TRANSFORMS[signature]
        try:
            outputs = self._signatures.call(name, columns)
        except tf.errors.InvalidArgumentError as error:
            raise DataError(f"the model fails for these rows: {_reason(error.message)}") from error
        except UnicodeDecodeError as error:
            # TensorFlow's message quotes bytes of the input, which may not be valid UTF-8.
            message = error.object.decode(errors="backslashreplace")
            raise DataError(f"the model fails for these rows: {_reason(message)}") from error
        return (
            outputs if self.variant is None else self.variant.answer(self.variant.predict(outputs))
        )


def _reason(message: str) -> str:
    """Returns the cause in a message of TensorFlow, without the locations in the graph."""
    lines = (_GRAPH_LOCATIONS.sub("", line).strip() for line in message.splitlines())
    cause = next((line for line in lines if line), message)
    return "".join(char if char.isprintable() else "?" for char in shorten(cause))


def load_model(folder: Path, variant: str | None = None) -> Model:
    """Loads a version, and optionally a variant that predicts in place of its network.

    Args:
      variant: the name of the variant, or None for the SavedModel's own network.

    Raises:
      ConfigError: the version has no variant of that name.
      DataError: the version or the variant is damaged, the folder is not a pushed version, or the
        variant's runtime is not installed.
    """
    interface = read_interface(folder)
    runnable = None
    if variant is not None:
        runnable = load_variant(folder, variant, interface)
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", _LOG_LEVEL)
    has_pictures = any(column.picture for column in interface.columns)
    try:
        return Model(folder, interface, Signatures(folder, has_pictures), runnable)
    except Exception as error:  # TensorFlow raises many types for truncated files.
        raise DataError(
            f"{folder} cannot be loaded ({type(error).__name__}: {shorten(error)}): the version is"
            f" damaged; push it again, or run `{typed_command('rollback')}`."
        ) from error


_PLATFORMS: dict[Format, str] = {"litert": "litert_tflite", "onnx": "onnxruntime_onnx"}


@dataclass(frozen=True, eq=False)
class TransformedModel:
    """A variant of a version that predicts from transformed features, without TensorFlow."""

    folder: Path
    interface: ModelInterface
    variant: RunnableVariant
    outputs: dict[str, tuple[str, tuple[int | None, ...]]]
    takes_examples: bool = False

    @property
    def platform(self) -> str:
        """The platform of the variant, by the name that Triton uses."""
        return _PLATFORMS[self.variant.variant.format]

    def predict(self, columns: Mapping[str, np.ndarray]) -> Arrays:
        """Returns the outputs by name for features by name.

        Each feature has the shape [batch] or [batch, width].
        """
        features = {
            tensor.name: columns[tensor.name]
            .reshape(-1, *_shape(tensor))
            .astype(tensor.dtype, copy=False)
            for tensor in self.variant.variant.inputs
        }
        return self.variant.answer(self.variant.predict(features))

    def predict_examples(self, columns: Mapping[str, np.ndarray]) -> Arrays:
        """Raises DataError: only the SavedModel can transform the columns of tf.Examples."""
        raise DataError(
            f"this server takes transformed features ({', '.join(self.interface.by_request)}), not"
            " tf.Examples: use a server that was started without --transformed."
        )


Servable = Model | TransformedModel
"""A loaded version: the SavedModel, or only a variant. Calls from several threads are safe."""


def load_transformed(version: Path, variant: str) -> TransformedModel:
    """Loads only a variant of a version, without the SavedModel.

    Raises:
      ConfigError: the version has no variant of that name.
      DataError: the variant is damaged, or its runtime is not installed.
    """
    version_interface = read_interface(version)
    opened = load_variant(version, variant, version_interface)
    inputs = opened.variant.inputs
    interface = ModelInterface(
        tuple(_to_column(tensor) for tensor in inputs),
        version_interface.label,
        version_interface.label_dtype,
        version_interface.task,
        classes=version_interface.classes,
    )
    row = {t.name: np.zeros((1, *_shape(t)), t.dtype) for t in inputs}
    answers = opened.answer(opened.predict(row))
    outputs = {name: _describe(values) for name, values in sorted(answers.items())}
    return TransformedModel(version, interface, opened, outputs)


def _shape(tensor: VariantTensor) -> tuple[int, ...]:
    """Returns the shape of the tensor in a row, with 1 for sizes that are unknown."""
    return tuple(size or 1 for size in tensor.shape[1:])


def _to_column(tensor: VariantTensor) -> FeatureColumn:
    is_integer = np.issubdtype(np.dtype(tensor.dtype), np.integer)
    dtype: RawDtype = "int64" if is_integer else "float32"
    shape = _shape(tensor)
    return FeatureColumn(
        tensor.name, tensor.name, dtype, is_integer, int(np.prod(shape)), shape=shape
    )


def _describe(values: np.ndarray) -> tuple[str, tuple[int | None, ...]]:
    dtype = "string" if values.dtype == object else values.dtype.name
    return dtype, (None, *values.shape[1:])
