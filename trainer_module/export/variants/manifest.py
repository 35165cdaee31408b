"""What a variant says of itself, in its `variant.json`: read without TensorFlow."""

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
"""In the folder of a variant, beside the file that the runtime reads."""

_REMEDY = "push the version again."

Format = Literal["litert", "onnx"]


@dataclass(frozen=True)
class VariantTensor:
    """An input or an output."""

    name: str
    """The transformed feature, or what the model itself calls the output."""
    tensor: str
    """What the file calls it."""
    dtype: str
    shape: tuple[int | None, ...]
    """With None for the batch."""


@dataclass(frozen=True)
class Variant:
    """A model in the form of another runtime: transformed features in, numbers out."""

    name: str
    """As in the config's `optimize.variants`."""
    format: Format
    precision: str
    """Such as float, float16 or int8."""
    file: str
    """What the runtime reads, beside the manifest."""
    sha256: str
    bytes: int
    gzipped_bytes: int
    inputs: tuple[VariantTensor, ...]
    outputs: tuple[VariantTensor, ...]
    task: str
    """Its kind, as in the config."""
    classes: tuple[str, ...]
    """Their names by index; none of a number."""
    bounds: tuple[float, float] | None
    """What `predictions` never leave where they are probabilities: logarithms are taken of them,
    and low precisions round to 0 and 1."""
    runtime: str
    """The package that runs it."""
    runtime_version: str
    """The one that it was checked by."""
    how_to_load: str
    """A line of Python."""
    beside: Mapping[str, str] = field(default_factory=dict)
    """The sha256 of further files that it needs, by name."""
    provider: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """ONNX Runtime's settings by provider, where it is to run on others than the CPU."""
    trtexec: str = ""
    """The command that builds an engine of TensorRT, where the variant is meant for it."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """On the eval split, by name."""
    measured: Mapping[str, Any] = field(default_factory=dict)
    """Figures of a process that has only its runtime, and by how much outputs differ."""
    notes: tuple[str, ...] = ()
    """What is to be known, such as what its metrics are of."""

    def to_json(self) -> str:
        """What `read_variant` reads."""
        return json.dumps(asdict(self), indent=2)


def hash_file(path: Path) -> str:
    """Returns the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe_file(path: Path) -> dict[str, Any]:
    """Returns the fields of a manifest that a file alone tells."""
    content = path.read_bytes()
    return {
        "file": path.name,
        "sha256": hash_file(path),
        "bytes": len(content),
        "gzipped_bytes": len(gzip.compress(content, 6)),
    }


def write_variant(variant: Variant, folder: Path) -> None:
    """Writes the manifest, in the place of an earlier one, by a rename at the end."""
    scratch = folder / f".{VARIANT_FILE}.tmp"
    scratch.write_text(variant.to_json())
    os.replace(scratch, folder / VARIANT_FILE)


def read_variant(folder: Path) -> Variant:
    """Returns the manifest of a folder, once its file is what the manifest says.

    Raises:
      DamagedFileError: one of them is not there, or damaged.
    """
    path = folder / VARIANT_FILE
    try:
        variant = _parse(json.loads(path.read_text()))
    except FileNotFoundError:
        what = f"lacks {VARIANT_FILE}: it is no variant of a model"
        raise DamagedFileError.of(folder, what, _REMEDY) from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        what = f"is damaged ({type(error).__name__}: {error})"
        raise DamagedFileError.of(path, what, _REMEDY) from None
    for name, right in {variant.file: variant.sha256, **variant.beside}.items():
        _check_file(folder / name, right)
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
            raise ValueError(f"its file {name!r} is not beside it")
    return variant


def _check_file(path: Path, right: str) -> None:
    try:
        found = hash_file(path)
    except OSError as error:
        raise DamagedFileError.of(path, f"cannot be read ({error.strerror})", _REMEDY) from None
    if found != right:
        what = f"is damaged: its sha256 is {found}, but {VARIANT_FILE} says {right}"
        raise DamagedFileError.of(path, what, _REMEDY)
