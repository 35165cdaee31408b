"""What a config may say about how its CSV files are written; free of TensorFlow and TFX."""

from __future__ import annotations

import codecs
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from trainer_module.sections import Settings


def _sign(text: str) -> str:
    if len(text) != 1 or not text.isascii() or text in "\r\n":
        raise ValueError('right is one sign of ASCII, such as ";" or "\\t" for a tab')
    return text


def _encoding(name: str) -> str:
    try:
        codecs.lookup(name)
    except LookupError:
        raise ValueError("right is an encoding that Python knows, such as cp1252") from None
    return name


class CsvSettings(Settings):
    """How CSV files are written, where looking at them does not tell; each file is looked at."""

    delimiter: Annotated[str, AfterValidator(_sign)] | None = None
    """What stands between cells; default: a comma, semicolon, tab or bar, whichever fits."""
    encoding: Annotated[str, AfterValidator(_encoding)] | None = None
    """Such as cp1252; default: by the byte order mark, else UTF-8 if it is that, else cp1252."""
    header: list[str] | None = Field(default=None, min_length=1)
    """The columns' names, in order, of files whose first row is data."""
    quote: Annotated[str, AfterValidator(_sign)] | None = '"'
    """What stands around cells that hold delimiters or line ends; null: nothing does."""
    decimal: Literal[".", ","] = "."
    """What stands before the decimals of a number."""
    missing_values: list[str] = []
    """Cells that mean a missing value, such as NA, besides empty ones."""
    strip: bool = True
    """Whether spaces around cells and names of columns are taken away."""
