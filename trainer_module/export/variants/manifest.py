"""The manifest of a variant, `variant.json`, read without TensorFlow."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from trainer_module.errors import DamagedFileError

VARIANT_FILE = "variant.json"
"""The name of the manifest in the folder of a variant."""

_REMEDY = "push the version again."

Format = Literal["litert", "onnx"]


@dataclass(frozen=True)
class VariantTensor:
    """An input or an output of a variant."""

    name: str
    """The name of the transformed feature or of the model's output."""
    tensor: str
    """The name of the tensor in the file."""
    dtype: str
    shape: tuple[int | None, ...]
    """The shape, with None for the batch."""


@dataclass(frozen=True)
class Variant:
    """A model that was converted for another runtime; it maps transformed features to numbers."""

    name: str
    """The name in the config's `optimize.variants`."""
    format: Format
    precision: str
    """The data type, such as float, float16 or int8."""
    file: str
    """The name of the file that the runtime loads, in the folder of the manifest."""
    sha256: str
    bytes: int
    gzipped_bytes: int
    inputs: tuple[VariantTensor, ...]
    outputs: tuple[VariantTensor, ...]
    task: str
    """The kind of the task, as in the config."""
    classes: tuple[str, ...]
    """The names of the classes by index, or an empty tuple for a number."""
    bounds: tuple[float, float] | None
    """The bounds to which `predictions` are clipped, or None for no bounds.

    Metrics take the logarithm of probabilities, and a low precision rounds some of them to 0 or
    1."""
    runtime: str
    """The package that runs the variant."""
    runtime_version: str
    """The version of the runtime with which the variant was checked."""
    how_to_load: str
    """A line of Python that loads the variant."""
    beside: Mapping[str, str] = field(default_factory=dict)
    """The sha256 of additional files that the variant needs, by name."""
    provider: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The options of ONNX Runtime's execution providers except the CPU's, by provider."""
    trtexec: str = ""
    """The command that builds a TensorRT engine, if the variant is for TensorRT."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The metrics on the eval split, by name."""
    measured: Mapping[str, Any] = field(default_factory=dict)
    """The latencies, the memory, and the maximum differences from the model's outputs."""
    notes: tuple[str, ...] = ()
    """Notes for users, such as the data that the metrics are measured on."""

    def to_json(self) -> str:
        """Returns the manifest as JSON, which `read_variant` reads."""
        return json.dumps(asdict(self), indent=2)


def hash_file(path: Path) -> str:
    """Returns the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe_file(path: Path) -> dict[str, Any]:
    """Returns the fields of a manifest that describe a file."""
    content = path.read_bytes()
    return {
        "file": path.name,
        "sha256": hash_file(path),
        "bytes": len(content),
        "gzipped_bytes": len(gzip.compress(content, 6)),
    }


def write_variant(variant: Variant, folder: Path) -> None:
    """Writes the manifest atomically, and replaces an earlier manifest."""
    scratch = folder / f".{VARIANT_FILE}.tmp"
    scratch.write_text(variant.to_json())
    os.replace(scratch, folder / VARIANT_FILE)


def read_variant(folder: Path) -> Variant:
    """Returns the manifest of a folder, after verifying the hashes of its files.

    Raises:
      DamagedFileError: the manifest or a file is missing or damaged.
    """
    path = folder / VARIANT_FILE
    try:
        variant = _parse(json.loads(path.read_text()))
    except FileNotFoundError:
        damage = f"lacks {VARIANT_FILE}, so the folder is not a variant of a model"
        raise DamagedFileError.of(folder, damage, _REMEDY) from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        damage = f"is damaged ({type(error).__name__}: {error})"
        raise DamagedFileError.of(path, damage, _REMEDY) from None
    for name, expected in {variant.file: variant.sha256, **variant.beside}.items():
        _check_file(folder / name, expected)
    return variant


def _parse(content: dict[str, Any]) -> Variant:
    for key in ("inputs", "outputs"):
        content[key] = tuple(
            VariantTensor(**{**tensor, "shape": tuple(tensor["shape"])}) for tensor in content[key]
        )
    for key in ("classes", "notes"):
        content[key] = tuple(content[key])
    if content["bounds"] is not None:
        content["bounds"] = tuple(content["bounds"])
    variant = Variant(**content)
    for name in (variant.file, *variant.beside):
        if Path(name).name != name:
            raise ValueError(f"the file {name!r} is not in the folder of the manifest")
    return variant


def _check_file(path: Path, expected: str) -> None:
    try:
        found = hash_file(path)
    except OSError as error:
        raise DamagedFileError.of(path, f"cannot be read ({error.strerror})", _REMEDY) from None
    if found != expected:
        damage = (
            f"is damaged: its sha256 is {found}, but the sha256 in {VARIANT_FILE} is {expected}"
        )
        raise DamagedFileError.of(path, damage, _REMEDY)
