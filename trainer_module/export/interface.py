"""Describes the inputs and outputs of an exported model in a file, without TensorFlow.

The signatures of the model are not sufficient: they rename columns to names that TensorFlow allows,
and do not contain the rank of most columns.
"""

from __future__ import annotations

import json
import keyword
import math
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from trainer_module.errors import DataError, enumerate_names
from trainer_module.features.number_format import (
    SPACES,
    NumberFormat,
    Style,
    compile_form,
    is_placeholder,
)

_MAX_CACHED, _MAX_CACHED_BYTES = 4096, 64
"""The maximum number of strings in the cache, and the maximum number of bytes of a string."""
_LARGEST = float(np.finfo(np.float32).max)
"""The largest number that the graph can read, because it reads numbers as float32."""
_MAX_FORMATS = 3
"""The maximum number of formats that a message names."""


class TextReader:
    """A check of whether the exported graph can read a string in a column of text.

    The graph treats strings that it cannot read as missing values.
    """

    def __init__(
        self, forms: Mapping[str, str], style: Style | Literal[""] = "", unit: str = ""
    ) -> None:
        """Creates a reader with an empty cache.

        Args:
          forms: the patterns of readable strings, by the name of the format.
          style: the number format, or an empty string if the column holds no numbers.
          unit: the unit that may stand before or after each number, such as `EUR`.
        """
        self._forms = forms
        self._number_format = NumberFormat(style, unit) if style else None
        self._cache: dict[bytes, bool] = {}

    @property
    def right(self) -> str:
        """A description of valid values in words."""
        names = enumerate_names(list(self._forms)[:_MAX_FORMATS], "or")
        if self._number_format is None:
            return f"a value in the format {names}"
        return f"a number, or text in the format {names}"

    def is_readable(self, text: bytes) -> bool:
        """Returns whether a string can be read, or is a placeholder of a missing value."""
        is_readable = self._cache.get(text)
        if is_readable is None:
            is_readable = self._is_readable(text)
            if len(text) <= _MAX_CACHED_BYTES:
                if len(self._cache) >= _MAX_CACHED:
                    self._cache.clear()
                self._cache[text] = is_readable
        return is_readable

    def _is_readable(self, encoded: bytes) -> bool:
        text = encoded.decode(errors="replace")
        if self._number_format is not None:
            is_read = not math.isnan(self._number_format.read(text))
        else:
            forms = self._forms.values()
            is_read = any(compile_form(form).fullmatch(text) for form in forms)
        return is_read or not text.strip(SPACES) or is_placeholder(text)

    def write(self, value: float | bool) -> bytes | None:
        """Returns a number or a boolean as a string that the graph can read, or None if there is no
        such string.
        """
        if isinstance(value, bool) or self._number_format is None:
            text = str(value).lower()
        elif abs(value) <= _LARGEST:
            text = self._number_format.write(value)
        else:
            return None
        return text.encode() if self.is_readable(text.encode()) else None


INTERFACE_FILE = "assets.extra/inputs.json"
"""The path of the description in a SavedModel, in a folder that servers ignore."""

RawDtype = Literal["float32", "float64", "int64", "string"]


@dataclass(frozen=True)
class RawColumn:
    """A column of the raw data that requests send."""

    name: str
    request: str
    """The name of the column in the signature `serving_raw`."""
    dtype: RawDtype
    """The dtype in the signature `serving_raw`: float64 for integers that may be missing."""
    is_whole: bool
    """Whether the numbers in the column are integers."""
    width: int | None
    """The number of values per row, or None if it varies."""
    picture: Literal["", "bytes", "path"] = ""
    """The kind of the pictures in the training data, or an empty string for other columns."""
    forms: tuple[tuple[str, str], ...] = ()
    """The names and patterns of the strings that the graph can read.

    The tuple is empty if any string is valid, and in versions of older releases.
    """
    style: Style | Literal[""] = ""
    """The format of numbers in text, or an empty string if the column holds no such numbers."""
    unit: str = ""
    """The unit that may stand before or after each number, such as `EUR`."""

    @property
    def text_reader(self) -> TextReader | None:
        """A new reader of the column's strings, or None if any string is valid."""
        return TextReader(dict(self.forms), self.style, self.unit) if self.forms else None


@dataclass(frozen=True)
class ModelInput:
    """A transformed feature, which is an input of the network."""

    name: str
    request: str
    """The name of the feature in the signature `from_transformed`."""
    dtype: str
    shape: tuple[int, ...]
    """The shape of one example."""


@dataclass(frozen=True)
class ModelInterface:
    """The inputs of an exported model, its task and its classes."""

    columns: tuple[RawColumn, ...]
    label: str = ""
    """The name of the label's column, or an empty string for a task without a label."""
    label_dtype: RawDtype = "string"
    task: str = ""
    """The kind of the task, as in the config."""
    weight: str | None = None
    classes: tuple[str, ...] = ()
    """The names of the classes by index, or an empty tuple for a number."""
    features: tuple[ModelInput, ...] = ()
    """The transformed features; empty in versions of older releases."""
    ignored: tuple[str, ...] = ()
    """The columns of the training data that are no input, such as an identifier; empty in versions
    of older releases."""

    @cached_property
    def by_request(self) -> dict[str, RawColumn]:
        """The columns by their names in requests."""
        return {column.request: column for column in self.columns}

    @cached_property
    def unused(self) -> frozenset[str]:
        """The columns that requests may contain although the model does not take them."""
        others = {*self.ignored, self.label, self.weight or ""}
        return frozenset(others - self.by_request.keys() - self._by_name.keys() - {""})

    @cached_property
    def text_readers(self) -> dict[str, TextReader]:
        """The readers of text columns that hold numbers, dates or booleans, by request name."""
        columns = self.by_request.items()
        return {
            name: reader for name, column in columns if (reader := column.text_reader) is not None
        }

    @cached_property
    def _by_name(self) -> dict[str, RawColumn]:
        return {column.name: column for column in self.columns}

    def column(self, name: str) -> RawColumn | None:
        """Returns the column of a name, or None if the model does not take the column."""
        return self._by_name.get(name)

    def to_json(self) -> str:
        """Returns the description as JSON, which `read_interface` reads."""
        return json.dumps(asdict(self))


def read_interface(version: Path) -> ModelInterface:
    """Returns the description of a model's inputs in the folder of a version.

    Raises:
      DataError: the description is missing, because other code exported the model, or is damaged.
    """
    path = version / INTERFACE_FILE
    try:
        return parse_interface(path.read_text())
    except FileNotFoundError:
        raise DataError(
            f"{version} has no {INTERFACE_FILE}, so this release of Scopeline did not export the"
            " model; run the pipeline again."
        ) from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"{path} is damaged ({type(error).__name__}: {error}): push the version again."
        ) from None


def parse_interface(text: str) -> ModelInterface:
    """Returns the description that `ModelInterface.to_json` has written.

    Raises:
      ValueError, TypeError or KeyError: the description is damaged.
    """
    content: dict[str, Any] = json.loads(text)
    columns = tuple(_read_column(column) for column in content.pop("columns"))
    features = tuple(
        ModelInput(**{**feature, "shape": tuple(feature["shape"])})
        for feature in content.pop("features", ())
    )
    classes, ignored = (tuple(content.pop(key, ())) for key in ("classes", "ignored"))
    return ModelInterface(columns, **content, classes=classes, features=features, ignored=ignored)


def _read_column(content: dict[str, Any]) -> RawColumn:
    return RawColumn(**{**content, "forms": tuple(map(tuple, content.get("forms", ())))})


def request_names(columns: Iterable[str]) -> list[str]:
    """Returns the names of columns in requests, which TensorFlow allows as names of arguments.

    A name consists of letters, digits and `_`, and is not a keyword of Python, such as `class`. The
    names differ by more than case, which TensorFlow ignores in names of tensors.
    """
    names: list[str] = []
    taken = {"self"}
    for column in columns:
        safe = re.sub(r"[^A-Za-z0-9_]", "_", column)
        is_name = safe[:1].isalpha() and not keyword.iskeyword(safe)
        name = safe if is_name else f"column_{safe}"
        is_taken = name.lower() in taken
        names.append(f"{name}_{zlib.crc32(column.encode()):08x}" if is_taken else name)
        taken.add(names[-1].lower())
    return names
