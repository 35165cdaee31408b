"""Which texts the graph of a model reads as numbers, dates, or yes and no; without TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np

from trainer_module.errors import enumerate_names
from trainer_module.features.numbers.written import Style, Writing, is_placeholder
from trainer_module.features.spaces import SPACES, compile_form

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
        """Whether a text is read, or says that the value is missing."""
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
        """A number, or true and false, as a text that the graph reads; None if it reads none."""
        if isinstance(value, bool) or self._writing is None:
            text = str(value).lower()
        elif abs(value) <= _LARGEST:
            text = self._writing.write(value)
        else:
            return None
        return text.encode() if self.is_readable(text.encode()) else None
