"""Reads a BERT in Hugging Face's format: config.json, vocab.txt and model.safetensors.

The module does not import TensorFlow, so that the check of a config is fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from trainer_module.errors import DataError, enumerate_names
from trainer_module.features.text.pieces import VOCABULARY, read_object, read_pieces
from trainer_module.published import local_folder
from trainer_module.settings.model import BertSizes


@dataclass(frozen=True)
class BertShape:
    """The sizes and constants of a BERT, which Hugging Face's config.json contains."""

    vocabulary: int
    """The number of word pieces in the vocabulary."""
    layers: int
    """The number of Transformer blocks."""
    hidden: int
    """The length of a token's vector."""
    heads: int
    """The number of attention heads in each block."""
    feed_forward: int
    """The number of units of the first of the two dense layers in each block."""
    positions: int
    """The maximum number of tokens in an input."""
    token_types: int = 2
    """The number of texts in an input that have different embeddings."""
    epsilon: float = 1e-12
    """The epsilon of layer normalisation."""

    @classmethod
    def from_sizes(cls, sizes: BertSizes, vocabulary: int) -> BertShape:
        """Returns the shape of a BERT that is trained from scratch."""
        feed_forward = 4 * sizes.hidden
        return cls(
            vocabulary, sizes.layers, sizes.hidden, sizes.heads, feed_forward, sizes.max_tokens
        )

    def matches(self, sizes: BertSizes) -> bool:
        """Returns whether the sizes are those of `model.size` in the config."""
        return (self.layers, self.hidden, self.heads) == (sizes.layers, sizes.hidden, sizes.heads)

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of the weights, without the pooler, by Hugging Face's names.

        Matrices are [outputs, inputs].
        """
        hidden, between = self.hidden, self.feed_forward
        shapes: dict[str, tuple[int, ...]] = {
            "embeddings.word_embeddings.weight": (self.vocabulary, hidden),
            "embeddings.position_embeddings.weight": (self.positions, hidden),
            "embeddings.token_type_embeddings.weight": (self.token_types, hidden),
            **_norm_shapes("embeddings.LayerNorm", hidden),
        }
        for layer in range(self.layers):
            block = f"encoder.layer.{layer}"
            for part in ("query", "key", "value"):
                shapes |= _dense_shapes(f"{block}.attention.self.{part}", hidden, hidden)
            shapes |= _dense_shapes(f"{block}.attention.output.dense", hidden, hidden)
            shapes |= _norm_shapes(f"{block}.attention.output.LayerNorm", hidden)
            shapes |= _dense_shapes(f"{block}.intermediate.dense", between, hidden)
            shapes |= _dense_shapes(f"{block}.output.dense", hidden, between)
            shapes |= _norm_shapes(f"{block}.output.LayerNorm", hidden)
        return shapes

    def pooler(self) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of the optional pooler's weights by Hugging Face's names."""
        return _dense_shapes("pooler.dense", self.hidden, self.hidden)


def _dense_shapes(name: str, outputs: int, inputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _norm_shapes(name: str, size: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (size,), f"{name}.bias": (size,)}


CONFIG, WEIGHTS = "config.json", "model.safetensors"
PICKLES = ("pytorch_model.bin", "*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
"""Patterns of files with pickled weights, which are rejected, as unpickling can run any code."""
PREFIX = "bert."
"""The prefix of the encoder's weights in files that also contain the weights of a head."""
OLD_NAMES = {".gamma": ".weight", ".beta": ".bias"}
"""The endings of layer normalisation's weights in files that were converted from TensorFlow."""

_SIZES = {
    "vocabulary": "vocab_size",
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "feed_forward": "intermediate_size",
    "positions": "max_position_embeddings",
    "token_types": "type_vocab_size",
}
"""The keys of the sizes in config.json, by the fields of BertShape."""
_FLOATS = ("F64", "F32", "F16", "BF16")
"""The safetensors types of weights that are not quantised."""
_SUPPORTED = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}
"""Keys of config.json with their only supported value."""


@dataclass(frozen=True)
class BertFiles:
    """A folder of a BERT whose files have been checked."""

    folder: Path
    shape: BertShape


def read_files(folder: str) -> BertFiles:
    """Checks the files of a folder: the config, the vocabulary, and the weights' names and shapes.

    Args:
      folder: the path of the folder, or the name of a downloaded hub model.

    Raises:
      DataError: a file is missing or invalid, or does not belong to the other files.
    """
    path = Path(local_folder(folder))
    if not path.is_dir():
        raise _error(folder, f"the folder does not exist; give a folder with {_required_files()}")
    shape = _read_shape(path / CONFIG)
    _check_weights(path, shape)
    pieces = len(read_pieces(path).pieces)
    if pieces != shape.vocabulary:
        raise _error(
            path / VOCABULARY,
            f"the file has {pieces:,} lines, but vocab_size in {CONFIG} is {shape.vocabulary:,}; "
            "use files of the same model",
        )
    return BertFiles(path, shape)


def read_weights(files: BertFiles) -> dict[str, np.ndarray]:
    """Returns the encoder's weights in float32 by their current names, and the pooler's if present.

    Raises:
      DataError: the file is damaged, or belongs to another model.
    """
    names = _check_weights(files.folder, files.shape)
    with _open(files.folder / WEIGHTS) as tensors:
        return {ours: _as_float32(tensors.get_tensor(name)) for ours, name in names.items()}


def _as_float32(value: Any) -> np.ndarray:
    """Converts an array to float32, also from bfloat16, which NumPy supports after TensorFlow's
    import.
    """
    return np.asarray(value).astype(np.float32)


def _required_files() -> str:
    return enumerate_names((CONFIG, VOCABULARY, WEIGHTS), "and")


def _error(source: object, problem: str) -> DataError:
    return DataError(f"{source}: {problem}.")


def _read_shape(path: Path) -> BertShape:
    config = read_object(path)
    for key, supported in _SUPPORTED.items():
        if config.get(key, supported) != supported:
            raise _error(
                path, f"{key} is {config[key]!r}; the model bert supports only {supported!r}"
            )
    sizes = {}
    for name, key in _SIZES.items():
        size = config.get(key, 2 if key == "type_vocab_size" else None)
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise _error(path, f"{key} is {size!r}; {key} must be a whole number above 0")
        sizes[name] = size
    if sizes["hidden"] % sizes["heads"]:
        raise _error(
            path, f"a hidden_size of {sizes['hidden']} is not divisible by {sizes['heads']} heads"
        )
    epsilon = config.get("layer_norm_eps", BertShape.epsilon)
    if not isinstance(epsilon, float | int) or not epsilon > 0:
        raise _error(path, f"layer_norm_eps is {epsilon!r}; it must be a number above 0")
    return BertShape(**sizes, epsilon=float(epsilon))


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="np")
    except (SafetensorError, OSError) as error:
        raise _error(
            path, f"the file is damaged or incomplete ({error}); download the file again"
        ) from None


def _check_weights(folder: Path, shape: BertShape) -> dict[str, str]:
    """Returns the names in the file, by the current names of the weights."""
    path = folder / WEIGHTS
    if not path.is_file():
        raise _no_weights(folder)
    with _open(path) as tensors:
        names = {_current_name(name): name for name in tensors.keys()}  # noqa: SIM118 - no mapping
        slices = {current: tensors.get_slice(name) for current, name in names.items()}
        shapes = {current: tuple(part.get_shape()) for current, part in slices.items()}
        types = {current: part.get_dtype() for current, part in slices.items()}
    expected, pooler = shape.tensors(), shape.pooler()
    if pooler.keys() <= shapes.keys():
        expected |= pooler
    for name, size in expected.items():
        if name not in shapes:
            raise _error(
                path,
                f"the tensor {name} is missing, but {CONFIG} requires it; use files of the same "
                "model",
            )
        if shapes[name] != size:
            actual, required = ("x".join(map(str, s)) for s in (shapes[name], size))
            raise _error(
                path,
                f"{name} has the shape {actual}, but {CONFIG} requires {required}; use files of "
                "the same model",
            )
        _check_type(path, name, types[name])
    extra = next(_extra_layers(shapes, shape.layers), None)
    if extra:
        raise _error(
            path,
            f"the file has {extra}, but num_hidden_layers in {CONFIG} is {shape.layers}; use files "
            "of the same model",
        )
    return {name: names[name] for name in expected}


def _check_type(path: Path, name: str, dtype: str) -> None:
    if dtype not in _FLOATS:
        raise _error(
            path,
            f"{name} has the type {dtype}; quantised models are not supported. Use the model "
            f"before quantisation, with {enumerate_names(_FLOATS, 'or')}",
        )


def _current_name(name: str) -> str:
    name = name.removeprefix(PREFIX)
    for old, new in OLD_NAMES.items():
        if "LayerNorm" in name and name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _extra_layers(names: Mapping[str, Any], layers: int) -> Iterator[str]:
    return (name for name in names if name.startswith(f"encoder.layer.{layers}."))


def _no_weights(folder: Path) -> DataError:
    pickled = sorted({file.name for pattern in PICKLES for file in folder.glob(pattern)})
    if not pickled:
        return _error(folder, f"{WEIGHTS} is missing; the folder needs {_required_files()}")
    return _error(
        folder,
        f"{pickled[0]} is a pickle; pickles are rejected, as reading a pickle can run any code. "
        f"Use {WEIGHTS} of the same model, which transformers writes by "
        "save_pretrained(folder, safe_serialization=True)",
    )
