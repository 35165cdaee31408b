"""Runs a variant with its runtime, without TensorFlow and without the code of the model."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from trainer_module.errors import DataError, shorten
from trainer_module.export.variants.manifest import Format, Variant, VariantTensor, read_variant
from trainer_module.extras import install_command

SERVED_OUTPUTS = ("value", "scores", "embedding")
"""The outputs of a variant that clients receive unchanged."""

Arrays = dict[str, np.ndarray]


class Session(Protocol):
    """A model file that its runtime has loaded; a session is thread-safe."""

    def run(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """Runs the model on a batch.

        Args:
          inputs: the inputs, [batch, ...] each, by the names of the tensors in the file.

        Returns:
          The outputs, [batch, ...] each, by the names of the tensors in the file.
        """


MAX_SIZES = 8
"""The maximum number of batch sizes whose interpreters are kept."""


class LiteRTSession:
    """A LiteRT session with an interpreter for each batch size; one thread at a time runs it.

    An interpreter is not reused for another batch size. After a resize, LiteRT's backend XNNPACK
    continues to use the buffers of the previous size, and sometimes returns NaN.
    """

    def __init__(self, path: Path, threads: int) -> None:
        """Loads the file into the first interpreter."""
        from ai_edge_litert.interpreter import Interpreter

        self._interpreter = Interpreter
        self._lock = threading.Lock()
        self._path, self._threads = str(path), threads
        self._unused = self._make_runner()
        self._runners: OrderedDict[int, Any] = OrderedDict()

    def _make_runner(self) -> Any:
        interpreter = self._interpreter(model_path=self._path, num_threads=self._threads)
        return interpreter.get_signature_runner()

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the outputs by their names in the signature."""
        (rows, *_) = (len(values) for values in inputs.values())
        with self._lock:
            if rows not in self._runners:
                self._runners[rows], self._unused = self._unused or self._make_runner(), None
            self._runners.move_to_end(rows)
            if len(self._runners) > MAX_SIZES:
                self._runners.popitem(last=False)
            outputs: dict[str, np.ndarray] = self._runners[rows](**inputs)
            return outputs


CPU = "CPUExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"
CACHE_PATH = "trt_engine_cache_path"
"""The option of TensorRT's provider that sets the folder of engines and calibration tables."""


class OnnxSession:
    """A session of ONNX Runtime, which is thread-safe."""

    def __init__(self, path: Path, variant: Variant, threads: int, providers: list[Any]) -> None:
        """Loads the file; raises RuntimeError if a provider does not start."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        # By default idle threads spin, and occupy cores that other threads could use.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3  # 3 logs only errors; warnings need no action.
        self._session = onnxruntime.InferenceSession(str(path), options, providers)
        self._names = [output.tensor for output in variant.outputs]
        # If a provider does not start, ONNX Runtime silently uses the CPU instead.
        names = {entry if isinstance(entry, str) else entry[0] for entry in providers}
        if missing := sorted(names - {*self._session.get_providers()}):
            raise RuntimeError(f"provider {missing[0]} does not start on this machine")

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the outputs by the names of the tensors in the file."""
        return dict(zip(self._names, self._session.run(self._names, inputs), strict=True))


def _load_litert(
    path: Path, variant: Variant, threads: int, providers: tuple[str, ...]
) -> LiteRTSession:
    """Loads a file into a session of LiteRT.

    Raises:
      ValueError: the file is not a model, or has operations that this release of LiteRT lacks.
    """
    del variant, providers
    return LiteRTSession(path, threads)


def _load_onnx(
    path: Path, variant: Variant, threads: int, providers: tuple[str, ...]
) -> OnnxSession:
    """Loads a file into a session of ONNX Runtime.

    Raises:
      RuntimeError: the file is not a model, or has operations that this release lacks.
      ValueError: a provider is not available.
    """
    import onnxruntime

    available = onnxruntime.get_available_providers()
    if missing := [name for name in providers if name not in available]:
        raise ValueError(f"no provider {missing[0]}, only {', '.join(available)}")
    requested = [(name, _settings(variant, name, path.parent)) for name in providers]
    return OnnxSession(path, variant, threads, [*requested, CPU])


def _settings(variant: Variant, provider: str, folder: Path) -> dict[str, Any]:
    settings = dict(variant.provider.get(provider, {}))
    if CACHE_PATH in settings:
        settings[CACHE_PATH] = str(folder / settings[CACHE_PATH])
    return settings


RUNTIMES: Mapping[Format, tuple[Callable[..., Session], str]] = {
    "litert": (_load_litert, "ai-edge-litert"),
    "onnx": (_load_onnx, "onnxruntime"),
}
"""The loading function of each format, and the package that it imports."""


@dataclass(frozen=True)
class RunnableVariant:
    """A loaded variant, which is thread-safe."""

    variant: Variant
    session: Session

    def predict(self, features: Mapping[str, np.ndarray]) -> Arrays:
        """Returns the numeric outputs of the signatures `eval` and `serving_raw`, [batch, ...]
        each.

        Args:
          features: transformed features by name, [batch, ...] each. Features that the variant does
            not take are ignored.

        Raises:
          DataError: a feature is missing, or has the wrong shape or kind of numbers.
        """
        inputs = {tensor.tensor: _check_feature(tensor, features) for tensor in self.variant.inputs}
        rows = {len(values) for values in inputs.values()}
        if len(rows) > 1:
            row_counts = {tensor.name: len(inputs[tensor.tensor]) for tensor in self.variant.inputs}
            raise DataError(f"features have different numbers of rows: {row_counts}.")
        if rows == {0}:  # Runtimes reject empty batches, so a row of zeros yields the shapes.
            row = {name: np.zeros((1, *v.shape[1:]), v.dtype) for name, v in inputs.items()}
            return {name: values[:0] for name, values in self._run(row).items()}
        return self._run(inputs)

    def _run(self, inputs: Arrays) -> Arrays:
        results = self.session.run(inputs)
        outputs = {tensor.name: results[tensor.tensor] for tensor in self.variant.outputs}
        if self.variant.bounds is not None:
            outputs["predictions"] = outputs["predictions"].clip(*self.variant.bounds)
        return outputs

    def answer(self, outputs: Mapping[str, np.ndarray]) -> Arrays:
        """Returns the outputs of the signature `serving_raw`.

        If the task has classes, the result includes `class`, [batch], and `classes`, [batch, n], as
        bytes.

        Args:
          outputs: the outputs of `predict`.
        """
        served = {name: outputs[name] for name in SERVED_OUTPUTS if name in outputs}
        if "value" in served and "quantiles" in outputs:
            served["quantiles"] = outputs["quantiles"]
        if "scores" in served and self.variant.classes:
            names = np.array([name.encode() for name in self.variant.classes], object)
            scores = served["scores"]
            served["class"] = names[scores.argmax(1)]
            served["classes"] = np.tile(names, (len(scores), 1))
        return served


def open_variant(
    folder: Path, threads: int = 1, providers: tuple[str, ...] = ()
) -> RunnableVariant:
    """Loads a variant and returns it.

    Args:
      folder: the folder with the manifest and the file of the variant.
      threads: the number of threads that compute a prediction. One thread is fastest for small
        networks.
      providers: ONNX Runtime's execution providers. The first provider that supports an operation
        runs the operation; the CPU is always the last provider.

    Raises:
      DataError: the variant is damaged, or its runtime is not installed.
    """
    variant = read_variant(folder)
    load, package = RUNTIMES[variant.format]
    try:
        session = load(folder / variant.file, variant, threads, providers)
    except ImportError as error:
        raise DataError(
            f"{folder} needs the package {package}, which is not installed ({error}); run "
            f"`{install_command('optimize')}`."
        ) from None
    except (RuntimeError, ValueError) as error:
        raise DataError(
            f"{folder / variant.file} cannot be loaded by {package} "
            f"({shorten(error)}); the variant was checked with {variant.runtime_version}."
        ) from None
    return RunnableVariant(variant, session)


def _check_feature(tensor: VariantTensor, features: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns a feature in the dtype that the variant takes, after a check of its shape."""
    if tensor.name not in features:
        raise DataError(f"feature {tensor.name!r} is missing; found {', '.join(sorted(features))}.")
    values = np.asarray(features[tensor.name])
    shape = tensor.shape[1:]
    if values.shape[1:] != shape or not values.ndim:
        raise DataError(
            f"the shape of feature {tensor.name!r} is {list(values.shape)}, expected "
            f"[batch{''.join(f', {n}' for n in shape)}]."
        )
    if not np.can_cast(values.dtype, tensor.dtype, "same_kind"):
        raise DataError(
            f"the dtype of feature {tensor.name!r} is {values.dtype}, expected {tensor.dtype}."
        )
    return np.ascontiguousarray(values, tensor.dtype)
