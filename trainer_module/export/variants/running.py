"""Runs a variant with its runtime alone, without TensorFlow and the code of the model."""

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

SERVED_OUTPUTS = ("value", "scores", "embedding")
"""The outputs of a variant that clients receive unchanged."""

Arrays = dict[str, np.ndarray]


class Session(Protocol):
    """A file that its runtime has loaded; thread-safe."""

    def run(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """Returns outputs by the names of the file's tensors, for inputs by theirs, [batch, ...]
        each.
        """


MAX_SIZES = 8
"""The most batch sizes whose interpreters are kept."""


class LiteRTSession:
    """A LiteRT session with an interpreter for each batch size, run by one thread at a time.

    An interpreter whose tensors are resized sometimes returns NaN: XNNPACK, its backend, continues
    to use the buffers of the previous size.
    """

    def __init__(self, path: Path, threads: int) -> None:
        """Loads the file into a first interpreter."""
        from ai_edge_litert.interpreter import Interpreter

        self._interpreter = Interpreter
        self._lock = threading.Lock()
        self._path, self._threads = str(path), threads
        self._unused = self._make()
        self._runners: OrderedDict[int, Any] = OrderedDict()

    def _make(self) -> Any:
        interpreter = self._interpreter(model_path=self._path, num_threads=self._threads)
        return interpreter.get_signature_runner()

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns outputs by the names of the signature."""
        (rows, *_) = (len(values) for values in inputs.values())
        with self._lock:
            if rows not in self._runners:
                self._runners[rows], self._unused = self._unused or self._make(), None
            self._runners.move_to_end(rows)
            if len(self._runners) > MAX_SIZES:
                self._runners.popitem(last=False)
            outputs: dict[str, np.ndarray] = self._runners[rows](**inputs)
            return outputs


CPU = "CPUExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"
CACHE_PATH = "trt_engine_cache_path"
"""The option of TensorRT's provider for the folder of engines and calibration tables."""


class OnnxSession:
    """A session of ONNX Runtime, which is thread-safe."""

    def __init__(self, path: Path, variant: Variant, threads: int, providers: list[Any]) -> None:
        """Loads the file; raises RuntimeError if a provider does not start."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        # By default idle threads spin, and occupy cores that others could use.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3  # Errors only: its many warnings need no action.
        self._session = onnxruntime.InferenceSession(str(path), options, providers)
        self._names = [output.tensor for output in variant.outputs]
        # ONNX Runtime silently replaces a provider that does not start with the CPU.
        names = {one if isinstance(one, str) else one[0] for one in providers}
        if missing := sorted(names - {*self._session.get_providers()}):
            raise RuntimeError(f"provider {missing[0]} does not start here")

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns outputs by the names of the file's tensors."""
        return dict(zip(self._names, self._session.run(self._names, inputs), strict=True))


def _load_litert(
    path: Path, variant: Variant, threads: int, providers: tuple[str, ...]
) -> LiteRTSession:
    """Loads a file; raises ValueError if it is no model, or has operations unknown to this
    release.
    """
    del variant, providers
    return LiteRTSession(path, threads)


def _load_onnx(
    path: Path, variant: Variant, threads: int, providers: tuple[str, ...]
) -> OnnxSession:
    """Loads a file into a session of ONNX Runtime.

    Raises:
      RuntimeError: the file is no model, or has operations that are unknown to this release.
      ValueError: a provider is not available.
    """
    import onnxruntime

    there = onnxruntime.get_available_providers()
    if missing := [name for name in providers if name not in there]:
        raise ValueError(f"no provider {missing[0]}, only {', '.join(there)}")
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
    """A variant that is loaded; thread-safe."""

    variant: Variant
    session: Session

    def predict(self, features: Mapping[str, np.ndarray]) -> Arrays:
        """Returns the numeric outputs of the signatures `eval` and `serving_raw`, [batch, ...]
        each.

        Args:
          features: transformed features by name, [batch, ...] each; those that the variant does not
            take are ignored.

        Raises:
          DataError: a feature is missing, or has the wrong shape or kind of numbers.
        """
        inputs = {tensor.tensor: _fitting(tensor, features) for tensor in self.variant.inputs}
        rows = {len(values) for values in inputs.values()}
        if len(rows) > 1:
            row_counts = {tensor.name: len(inputs[tensor.tensor]) for tensor in self.variant.inputs}
            raise DataError(f"features have different numbers of rows: {row_counts}.")
        if rows == {0}:  # Runtimes reject empty batches: one row gives the dtypes and shapes.
            some = {name: np.zeros((1, *v.shape[1:]), v.dtype) for name, v in inputs.items()}
            return {name: values[:0] for name, values in self._run(some).items()}
        return self._run(inputs)

    def _run(self, inputs: Arrays) -> Arrays:
        found = self.session.run(inputs)
        outputs = {tensor.name: found[tensor.tensor] for tensor in self.variant.outputs}
        if self.variant.bounds is not None:
            outputs["predictions"] = outputs["predictions"].clip(*self.variant.bounds)
        return outputs

    def answer(self, outputs: Mapping[str, np.ndarray]) -> Arrays:
        """Returns the outputs of the signature `serving_raw`, from those of `predict`.

        `class` [batch] and `classes` [batch, n], as bytes, if the task has classes.
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
      folder: the folder with its manifest and its file.
      threads: the threads that compute one prediction. One is fastest for small networks.
      providers: ONNX Runtime's providers; the first one that supports an operation runs it, by
        default the CPU.

    Raises:
      DataError: it is damaged, or its runtime is not installed.
    """
    variant = read_variant(folder)
    load, package = RUNTIMES[variant.format]
    try:
        session = load(folder / variant.file, variant, threads, providers)
    except ImportError as error:
        raise DataError(
            f"{folder} needs the package {package}, which is not there ({error}): "
            "pip install 'scopeline[optimize]'"
        ) from None
    except (RuntimeError, ValueError) as error:
        raise DataError(
            f"{folder / variant.file} cannot be loaded by {package} "
            f"({shorten(error)}); it was made for {variant.runtime_version}."
        ) from None
    return RunnableVariant(variant, session)


def _fitting(tensor: VariantTensor, features: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns a feature in the shape and dtype that the variant takes."""
    if tensor.name not in features:
        raise DataError(
            f"feature {tensor.name!r} is missing; there are {', '.join(sorted(features))}."
        )
    values = np.asarray(features[tensor.name])
    shape = tensor.shape[1:]
    if values.shape[1:] != shape or not values.ndim:
        raise DataError(
            f"feature {tensor.name!r} is {list(values.shape)}, but has to be "
            f"[batch{''.join(f', {n}' for n in shape)}]."
        )
    if not np.can_cast(values.dtype, tensor.dtype, "same_kind"):
        raise DataError(f"feature {tensor.name!r} is {values.dtype}, but has to be {tensor.dtype}.")
    return np.ascontiguousarray(values, tensor.dtype)
