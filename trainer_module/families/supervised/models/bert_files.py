"""A folder as Hugging Face keeps a BERT (config.json, vocab.txt, model.safetensors), and its sizes.

Nothing here imports TensorFlow: a config is checked before that is paid for.
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
    """Sizes and constants, as Hugging Face's config.json has them."""

    vocabulary: int
    """Pieces that have a vector."""
    layers: int
    hidden: int
    heads: int
    feed_forward: int
    """Units between the two dense layers of each block."""
    positions: int
    """The most tokens that can be read at once."""
    token_types: int = 2
    epsilon: float = 1e-12
    """Of the normalisations."""

    @classmethod
    def of_sizes(cls, sizes: BertSizes, vocabulary: int) -> BertShape:
        """One that nobody has trained yet."""
        feed_forward = 4 * sizes.hidden
        return cls(
            vocabulary, sizes.layers, sizes.hidden, sizes.heads, feed_forward, sizes.max_tokens
        )

    def is_of(self, sizes: BertSizes) -> bool:
        """Returns whether these are the sizes that a config asks for."""
        return (self.layers, self.hidden, self.heads) == (sizes.layers, sizes.hidden, sizes.heads)

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of the weights by Hugging Face's names; matrices are [outputs,
        inputs].
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
        """Likewise of the layer that the first token goes through, which not all models have."""
        return _dense_shapes("pooler.dense", self.hidden, self.hidden)


def _dense_shapes(name: str, outputs: int, inputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _norm_shapes(name: str, size: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (size,), f"{name}.bias": (size,)}


CONFIG, WEIGHTS = "config.json", "model.safetensors"
PICKLES = ("pytorch_model.bin", "*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
"""What weights are pickled in, by which they would run any code."""
PREFIX = "bert."
"""Before the names of the encoder's weights where a file has those of a head too."""
OLD_NAMES = {".gamma": ".weight", ".beta": ".bias"}
"""Of the normalisations, as files have them that were made from TensorFlow's."""

_SIZES = {
    "vocabulary": "vocab_size",
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "feed_forward": "intermediate_size",
    "positions": "max_position_embeddings",
    "token_types": "type_vocab_size",
}
_FLOATS = ("F64", "F32", "F16", "BF16")
"""Types of numbers, as safetensors calls them, that are the weights themselves."""
_ONLY = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}
"""Keys of config.json that may have one value alone."""


@dataclass(frozen=True)
class BertFiles:
    """A folder whose parts fit each other."""

    folder: Path
    shape: BertShape


def read_files(folder: str) -> BertFiles:
    """Reads all but the weights, of which it looks at the names and shapes.

    Args:
      folder: its path, or the name of a model that was fetched from the hub.

    Raises:
      DataError: a file is missing or broken, or does not fit the others.
    """
    path = Path(local_folder(folder))
    if not path.is_dir():
        raise _error(folder, "there is no such folder; name one with " + _needed())
    shape = _read_shape(path / CONFIG)
    _check_weights(path, shape)
    pieces = len(read_pieces(path).pieces)
    if pieces != shape.vocabulary:
        raise _error(
            path / VOCABULARY,
            f"it has {pieces:,} pieces, one a line, but vocab_size in {CONFIG} is "
            f"{shape.vocabulary:,}: they are of two models",
        )
    return BertFiles(path, shape)


def read_weights(files: BertFiles) -> dict[str, np.ndarray]:
    """Returns the encoder's weights by their names today, float32; without the pooler's if there is
    none.

    Raises:
      DataError: the file is broken, or holds another model's.
    """
    names = _check_weights(files.folder, files.shape)
    with _open(files.folder / WEIGHTS) as tensors:
        return {ours: _as_float32(tensors.get_tensor(name)) for ours, name in names.items()}


def _as_float32(value: Any) -> np.ndarray:
    """Also of bfloat16, which NumPy knows where TensorFlow has been imported."""
    return np.asarray(value).astype(np.float32)


def _needed() -> str:
    return enumerate_names((CONFIG, VOCABULARY, WEIGHTS), "and")


def _error(where: object, what: str) -> DataError:
    return DataError(f"{where}: {what}.")


def _read_shape(path: Path) -> BertShape:
    config = read_object(path)
    for key, only in _ONLY.items():
        if config.get(key, only) != only:
            raise _error(path, f"{key} is {config[key]!r}; the model bert takes {only!r} alone")
    sizes = {}
    for name, key in _SIZES.items():
        size = config.get(key, 2 if key == "type_vocab_size" else None)
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise _error(path, f"{key} is {size!r}; it has to be a whole number above 0")
        sizes[name] = size
    if sizes["hidden"] % sizes["heads"]:
        raise _error(
            path, f"{sizes['heads']} heads cannot share out a hidden_size of {sizes['hidden']}"
        )
    epsilon = config.get("layer_norm_eps", BertShape.epsilon)
    if not isinstance(epsilon, float | int) or not epsilon > 0:
        raise _error(path, f"layer_norm_eps is {epsilon!r}; it has to be a number above 0")
    return BertShape(**sizes, epsilon=float(epsilon))


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="np")
    except (SafetensorError, OSError) as error:
        raise _error(
            path, f"it is broken or was not copied to its end ({error}); get it again"
        ) from None


def _check_weights(folder: Path, shape: BertShape) -> dict[str, str]:
    """Returns the names in the file, by the names that the weights have today."""
    path = folder / WEIGHTS
    if not path.is_file():
        raise _no_weights(folder)
    with _open(path) as tensors:
        found = {_modern(name): name for name in tensors.keys()}  # noqa: SIM118 - no mapping
        parts = {ours: tensors.get_slice(name) for ours, name in found.items()}
        shapes = {ours: tuple(part.get_shape()) for ours, part in parts.items()}
        types = {ours: part.get_dtype() for ours, part in parts.items()}
    wanted, pooler = shape.tensors(), shape.pooler()
    if pooler.keys() <= shapes.keys():
        wanted |= pooler
    for name, size in wanted.items():
        if name not in shapes:
            raise _error(path, f"it has no {name}: it is of another model than {CONFIG}")
        if shapes[name] != size:
            was, right = ("x".join(map(str, s)) for s in (shapes[name], size))
            raise _error(
                path, f"{name} is {was}, but {CONFIG} asks for {right}: they are of two models"
            )
        _check_type(path, name, types[name])
    more = next(_beyond(shapes, shape.layers), None)
    if more:
        raise _error(path, f"it has {more}, but num_hidden_layers in {CONFIG} is {shape.layers}")
    return {name: found[name] for name in wanted}


def _check_type(path: Path, name: str, found: str) -> None:
    if found not in _FLOATS:
        raise _error(
            path,
            f"{name} is of {found}, which are no weights without a scale; use the model as it was "
            f"before it was made smaller, of {enumerate_names(_FLOATS, 'or')}",
        )


def _modern(name: str) -> str:
    name = name.removeprefix(PREFIX)
    for old, new in OLD_NAMES.items():
        if "LayerNorm" in name and name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _beyond(names: Mapping[str, Any], layers: int) -> Iterator[str]:
    return (name for name in names if name.startswith(f"encoder.layer.{layers}."))


def _no_weights(folder: Path) -> DataError:
    pickled = sorted({file.name for pattern in PICKLES for file in folder.glob(pattern)})
    if not pickled:
        return _error(folder, f"{WEIGHTS} is missing; the folder needs {_needed()}")
    return _error(
        folder,
        f"found {pickled[0]}, which is pickled: reading it would run whatever code it holds; use "
        f"{WEIGHTS} of the same model, which transformers writes by "
        "save_pretrained(folder, safe_serialization=True)",
    )
