"""What an exported model asks for and answers, written beside it: read without TensorFlow.

The signatures alone do not tell: they call columns by names that TensorFlow allows, and give no
rank for most of them.
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
    Style,
    Writing,
    compile_form,
    is_placeholder,
)

_MOST_KNOWN, _LONGEST_KNOWN = 4096, 64
"""Texts that are remembered, and the bytes of each."""
_LARGEST = float(np.finfo(np.float32).max)
"""The graph reads numbers as float32."""
_SHOWN = 3
"""Names of forms in a message."""


class TextReader:
    """Tells which texts the graph reads, of a column whose other texts count as missing."""

    def __init__(
        self, forms: Mapping[str, str], style: Style | Literal[""] = "", unit: str = ""
    ) -> None:
        """Args:
        forms: patterns of the texts that are read, by name.
        style: how numbers are written; empty where the column holds none.
        unit: what may stand beside each of them.
        """
        self._forms = forms
        self._writing = Writing(style, unit) if style else None
        self._known: dict[bytes, bool] = {}

    @property
    def right(self) -> str:
        """What would be right, in words."""
        names = enumerate_names(list(self._forms)[:_SHOWN], "or")
        if self._writing is None:
            return f"what is written as {names}"
        return f"a number, written as {names} where it is text"

    def is_readable(self, text: bytes) -> bool:
        """Returns whether a text is read, or says that the value is missing."""
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
        if self._writing is not None:
            is_read = not math.isnan(self._writing.read(text))
        else:
            forms = self._forms.values()
            is_read = any(compile_form(form).fullmatch(text) for form in forms)
        return is_read or not text.strip(SPACES) or is_placeholder(text)

    def write(self, value: float | bool) -> bytes | None:
        """Returns a number, or true and false, as a text that the graph reads; None if it reads
        none.
        """
        if isinstance(value, bool) or self._writing is None:
            text = str(value).lower()
        elif abs(value) <= _LARGEST:
            text = self._writing.write(value)
        else:
            return None
        return text.encode() if self.is_readable(text.encode()) else None


INTERFACE_FILE = "assets.extra/inputs.json"
"""In a SavedModel: servers leave the folder alone, and copies keep it."""

RawDtype = Literal["float32", "float64", "int64", "string"]


@dataclass(frozen=True)
class RawColumn:
    """A column of the raw data that a request has to bring."""

    name: str
    request: str
    """What the signature `serving_raw` calls it."""
    dtype: RawDtype
    """What this signature takes: float64 of whole numbers that may be missing."""
    is_whole: bool
    """Whether its numbers are whole."""
    width: int | None
    """Values of a row; None where rows have different numbers of them."""
    picture: Literal["", "bytes", "path"] = ""
    """What the training data held, of a column of encoded pictures."""
    forms: tuple[tuple[str, str], ...] = ()
    """Names and patterns of the texts that the graph reads; none where any text will do, or a
    version is of a release that did not say."""
    style: Style | Literal[""] = ""
    """How numbers are written in text; empty where it holds no such numbers."""
    unit: str = ""
    """What may stand beside each of them."""

    @property
    def text_reader(self) -> TextReader | None:
        """A new one; None where any text will do."""
        return TextReader(dict(self.forms), self.style, self.unit) if self.forms else None


@dataclass(frozen=True)
class ModelInput:
    """A transformed feature, one input of the network itself."""

    name: str
    request: str
    """What the signature `from_transformed` calls it."""
    dtype: str
    shape: tuple[int, ...]
    """Of one example."""


@dataclass(frozen=True)
class ModelInterface:
    """What a model asks for."""

    columns: tuple[RawColumn, ...]
    label: str = ""
    """Empty of a task that has none."""
    label_dtype: RawDtype = "string"
    task: str = ""
    """Its kind, as in the config."""
    weight: str | None = None
    classes: tuple[str, ...] = ()
    """Their names by index; none of a number."""
    features: tuple[ModelInput, ...] = ()
    """What Transform makes of the columns; none in versions of releases that did not say."""

    @cached_property
    def by_request(self) -> dict[str, RawColumn]:
        """The columns by what requests call them."""
        return {column.request: column for column in self.columns}

    @cached_property
    def text_readers(self) -> dict[str, TextReader]:
        """What reads the texts of columns that are to be numbers, dates, or yes and no."""
        columns = self.by_request.items()
        return {name: reader for name, one in columns if (reader := one.text_reader) is not None}

    @cached_property
    def _by_name(self) -> dict[str, RawColumn]:
        return {column.name: column for column in self.columns}

    def column(self, name: str) -> RawColumn | None:
        """Returns the column of a name, if the model asks for it."""
        return self._by_name.get(name)

    def to_json(self) -> str:
        """What `read_interface` reads."""
        return json.dumps(asdict(self))


def read_interface(version: Path) -> ModelInterface:
    """What a version's folder says of its model's inputs.

    Raises:
      DataError: it says nothing, as it was exported by other code, or nothing that can be read.
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
            f"{version} lacks {INTERFACE_FILE}, which says what its columns are: it is no version"
            " that this release of Scopeline has pushed; run the pipeline again."
        ) from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"{path} is damaged ({type(error).__name__}: {error}): push the version again."
        ) from None


def _read_column(content: dict[str, Any]) -> RawColumn:
    return RawColumn(**{**content, "forms": tuple(map(tuple, content.get("forms", ())))})


def request_names(columns: Iterable[str]) -> list[str]:
    """What requests call the columns: letters, digits and _, as TensorFlow allows no more.

    Nor does it allow words of Python's grammar, such as `class`.
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
