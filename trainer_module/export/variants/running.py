"""A variant that answers, by its runtime alone: neither TensorFlow nor any code of a model."""

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

ANSWERED = ("value", "scores", "embedding")
"""Of what a variant computes, what clients read as it is."""

Arrays = dict[str, np.ndarray]


class Session(Protocol):
    """A file, loaded by its runtime; may be asked by several threads at once."""

    def run(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """Outputs by the names of the file's tensors, for inputs by those, [batch, ...] each."""


MOST_SIZES = 8
"""Sizes of a batch that an interpreter each is kept for."""


class LiteRTSession:
    """Interpreters, which one thread at a time asks: one for each size of a batch.

    One whose tensors are resized gives NaN now and then: XNNPACK, which computes beneath, goes on
    with buffers of the size before.
    """

    def __init__(self, path: Path, threads: int) -> None:
        """Loads the file."""
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
        """Outputs by the names of the signature."""
        (rows, *_) = (len(values) for values in inputs.values())
        with self._lock:
            if rows not in self._runners:
                self._runners[rows], self._unused = self._unused or self._make(), None
            self._runners.move_to_end(rows)
            if len(self._runners) > MOST_SIZES:
                self._runners.popitem(last=False)
            outputs: dict[str, np.ndarray] = self._runners[rows](**inputs)
            return outputs


CPU = "CPUExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"
CACHE_PATH = "trt_engine_cache_path"
"""The setting of TensorRT's provider where engines are kept, and calibration tables looked for."""


class OnnxSession:
    """A session of ONNX Runtime, which any number of threads may ask."""

    def __init__(self, path: Path, variant: Variant, threads: int, providers: list[Any]) -> None:
        """Loads the file; raises RuntimeError where a provider does not start."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        # Threads that wait for work turn in circles else, on cores that others could have.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3  # Of warnings there are many that nobody can mend.
        self._session = onnxruntime.InferenceSession(str(path), options, providers)
        self._names = [output.tensor for output in variant.outputs]
        # ONNX Runtime goes on without a provider that does not start, on the CPU.
        names = {one if isinstance(one, str) else one[0] for one in providers}
        if missing := sorted(names - {*self._session.get_providers()}):
            raise RuntimeError(f"provider {missing[0]} does not start here")

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by their names."""
        return dict(zip(self._names, self._session.run(self._names, inputs), strict=True))


def _load_litert(
    path: Path, variant: Variant, threads: int, providers: tuple[str, ...]
) -> LiteRTSession:
    """Loads a file; ValueError if it is no model, or this release knows its operations not."""
    del variant, providers
    return LiteRTSession(path, threads)


def _load_onnx(
    path: Path, variant: Variant, threads: int, providers: tuple[str, ...]
) -> OnnxSession:
    """Loads a file.

    Raises:
      RuntimeError: the file is no model, or has operations that this release does not know.
      ValueError: a provider is not there.
    """
    import onnxruntime

    there = onnxruntime.get_available_providers()
    if missing := [name for name in providers if name not in there]:
        raise ValueError(f"no provider {missing[0]}, only {', '.join(there)}")
    asked = [(name, _settings(variant, name, path.parent)) for name in providers]
    return OnnxSession(path, variant, threads, [*asked, CPU])


def _settings(variant: Variant, provider: str, folder: Path) -> dict[str, Any]:
    settings = dict(variant.provider.get(provider, {}))
    if CACHE_PATH in settings:
        settings[CACHE_PATH] = str(folder / settings[CACHE_PATH])
    return settings


RUNTIMES: Mapping[Format, tuple[Callable[..., Session], str]] = {
    "litert": (_load_litert, "ai-edge-litert"),
    "onnx": (_load_onnx, "onnxruntime"),
}
"""By format, what loads a file, and the package that it needs, which is imported then."""


@dataclass(frozen=True)
class RunnableVariant:
    """A variant that is loaded; may be asked by several threads at once."""

    variant: Variant
    session: Session

    def predict(self, features: Mapping[str, np.ndarray]) -> Arrays:
        """What the signatures `eval` and `serving_raw` give as numbers, [batch, ...] each.

        Args:
          features: transformed, by name, [batch, ...] each; others than the variant's are left out.

        Raises:
          DataError: one is missing, or not of the shape or the kind of numbers that it has to be.
        """
        inputs = {tensor.tensor: _fitting(tensor, features) for tensor in self.variant.inputs}
        rows = {len(values) for values in inputs.values()}
        if len(rows) > 1:
            told = {tensor.name: len(inputs[tensor.tensor]) for tensor in self.variant.inputs}
            raise DataError(f"features have different numbers of rows: {told}.")
        if rows == {0}:  # Which no runtime is asked for: outputs of a row tell dtypes and shapes.
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
        """What the signature `serving_raw` gives, from what `predict` does.

        `class` [batch] and `classes` [batch, n], as bytes, where the task has classes.
        """
        served = {name: outputs[name] for name in ANSWERED if name in outputs}
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
    """Loads a variant.

    Args:
      folder: with its manifest and its file.
      threads: that compute one answer. One is quickest for small networks.
      providers: of ONNX Runtime, the first that can do an operation does it; the CPU without any.

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
    """Returns a feature as the variant takes it."""
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
