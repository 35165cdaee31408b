"""The description of an exported model's inputs and outputs, stored beside it, without TensorFlow.

The signatures alone are not enough: they rename columns to names that TensorFlow allows, and have
no rank for most of them.
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

_MOST_KNOWN, _LONGEST_KNOWN = 4096, 64
"""The most texts in the cache, and the most bytes of each."""
_LARGEST = float(np.finfo(np.float32).max)
"""The largest number that the graph reads, as it reads float32."""
_SHOWN = 3
"""The most names of formats in a message."""


class TextReader:
    """A check of which texts the graph reads in a column whose other texts count as missing."""

    def __init__(
        self, forms: Mapping[str, str], style: Style | Literal[""] = "", unit: str = ""
    ) -> None:
        """Creates a reader with an empty cache.

        Args:
          forms: patterns of the texts that are read, by name.
          style: the number format; empty if the column holds no numbers.
          unit: the text that may stand beside each number.
        """
        self._forms = forms
        self._number_format = NumberFormat(style, unit) if style else None
        self._known: dict[bytes, bool] = {}

    @property
    def right(self) -> str:
        """A description of valid values in words."""
        names = enumerate_names(list(self._forms)[:_SHOWN], "or")
        if self._number_format is None:
            return f"what is written as {names}"
        return f"a number, written as {names} where it is text"

    def is_readable(self, text: bytes) -> bool:
        """Returns whether a text can be read, or is a placeholder of a missing value."""
        found = self._known.get(text)
        if found is None:
            found = self._is_readable(text)
            if len(text) <= _LONGEST_KNOWN:
                if len(self._known) >= _MOST_KNOWN:
                    self._known.clear()
                self._known[text] = found
        return found

    def _is_readable(self, given: bytes) -> bool:
        text = given.decode(errors="replace")
        if self._number_format is not None:
            is_read = not math.isnan(self._number_format.read(text))
        else:
            forms = self._forms.values()
            is_read = any(compile_form(form).fullmatch(text) for form in forms)
        return is_read or not text.strip(SPACES) or is_placeholder(text)

    def write(self, value: float | bool) -> bytes | None:
        """Returns a number or a boolean as a text that the graph reads; None if there is no such
        text.
        """
        if isinstance(value, bool) or self._number_format is None:
            text = str(value).lower()
        elif abs(value) <= _LARGEST:
            text = self._number_format.write(value)
        else:
            return None
        return text.encode() if self.is_readable(text.encode()) else None


INTERFACE_FILE = "assets.extra/inputs.json"
"""The path of the description in a SavedModel: servers ignore the folder, and copies keep it."""

RawDtype = Literal["float32", "float64", "int64", "string"]


@dataclass(frozen=True)
class RawColumn:
    """A column of the raw data that requests send."""

    name: str
    request: str
    """The name of the column in the signature `serving_raw`."""
    dtype: RawDtype
    """The dtype in this signature: float64 for whole numbers that may be missing."""
    is_whole: bool
    """Whether its numbers are whole."""
    width: int | None
    """The number of values per row; None if it varies."""
    picture: Literal["", "bytes", "path"] = ""
    """The content of the training data, for a column of encoded pictures."""
    forms: tuple[tuple[str, str], ...] = ()
    """The names and patterns of the texts that the graph reads; empty if any text is valid, or in
    versions of older releases."""
    style: Style | Literal[""] = ""
    """The number format of text; empty if the column holds no such numbers."""
    unit: str = ""
    """The text that may stand beside each number."""

    @property
    def text_reader(self) -> TextReader | None:
        """A new reader of the column's texts; None if any text is valid."""
        return TextReader(dict(self.forms), self.style, self.unit) if self.forms else None


@dataclass(frozen=True)
class ModelInput:
    """A transformed feature, which is an input of the network itself."""

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
    """The name of the label's column; empty for a task without a label."""
    label_dtype: RawDtype = "string"
    task: str = ""
    """The kind of the task, as in the config."""
    weight: str | None = None
    classes: tuple[str, ...] = ()
    """The names of the classes by index; empty for a number."""
    features: tuple[ModelInput, ...] = ()
    """The transformed features; empty in versions of older releases."""

    @cached_property
    def by_request(self) -> dict[str, RawColumn]:
        """The columns by their names in requests."""
        return {column.request: column for column in self.columns}

    @cached_property
    def text_readers(self) -> dict[str, TextReader]:
        """The readers of text columns that hold numbers, dates or booleans, by request name."""
        columns = self.by_request.items()
        return {name: reader for name, one in columns if (reader := one.text_reader) is not None}

    @cached_property
    def _by_name(self) -> dict[str, RawColumn]:
        return {column.name: column for column in self.columns}

    def column(self, name: str) -> RawColumn | None:
        """Returns the column of a name; None if the model does not take it."""
        return self._by_name.get(name)

    def to_json(self) -> str:
        """Returns the description as JSON, which `read_interface` reads."""
        return json.dumps(asdict(self))


def read_interface(version: Path) -> ModelInterface:
    """Returns the description of a model's inputs in the folder of a version.

    Raises:
      DataError: it is missing, as for models exported by other code, or damaged.
    """
    path = version / INTERFACE_FILE
    try:
        content: dict[str, Any] = json.loads(path.read_text())
        columns = tuple(_read_column(column) for column in content.pop("columns"))
        features = tuple(
            ModelInput(**{**feature, "shape": tuple(feature["shape"])})
            for feature in content.pop("features", ())
        )
        classes = tuple(content.pop("classes", ()))
        return ModelInterface(columns, **content, classes=classes, features=features)
    except FileNotFoundError:
        raise DataError(
            f"{version} has no {INTERFACE_FILE}, which describes its columns, so this release of"
            " Scopeline has not pushed it; run the pipeline again."
        ) from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"{path} is damaged ({type(error).__name__}: {error}): push the version again."
        ) from None


def _read_column(content: dict[str, Any]) -> RawColumn:
    return RawColumn(**{**content, "forms": tuple(map(tuple, content.get("forms", ())))})


def request_names(columns: Iterable[str]) -> list[str]:
    """Returns the names of columns in requests: letters, digits and _, as TensorFlow allows no
    others.

    TensorFlow does not allow keywords of Python, such as `class`, either.
    """
    names: list[str] = []
    taken: set[str] = set()
    for column in columns:
        safe = re.sub(r"[^A-Za-z0-9_]", "_", column)
        is_name = safe[:1].isalpha() and not keyword.iskeyword(safe)
        name = safe if is_name else f"column_{safe}"
        names.append(f"{name}_{zlib.crc32(column.encode()):08x}" if name in taken else name)
        taken.add(names[-1])
    return names
