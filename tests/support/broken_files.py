"""Data that cannot be used, one kind of fault each, and the words that name it."""

from __future__ import annotations

import gzip
import io
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

GOOD = "size,side,label\n" + "".join(f"{n}.5,{'ns'[n % 2]},{n // 2 % 2}\n" for n in range(30))
LINES = "".join(f'{{"size": {n}.5, "label": {n % 2}}}\n' for n in range(30))
IMAGES = {"image": {"type": "image", "height": 8, "width": 8, "channels": 1}}


@dataclass(frozen=True)
class Broken:
    """Files below a folder, their config, and parts of the message."""

    id: str
    files: dict[str, str | bytes]
    words: tuple[str, ...]
    data: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)

    def written(self) -> dict[str, bytes]:
        """The bytes of each file."""
        return {n: c if isinstance(c, bytes) else c.encode() for n, c in self.files.items()}


def _csv(id: str, text: str | bytes, *words: str, csv: Any = None, **config: Any) -> Broken:
    data = {"format": "csv", "path": "a.csv"} | ({"csv": csv} if csv else {})
    return Broken(id, {"a.csv": text}, ("a.csv", *words), data, config)


def _whole(id: str, text: str, *words: str) -> Broken:
    """A table of which no single row is wrong."""
    return Broken(id, {"a.csv": text}, words, {"format": "csv", "path": "a.csv"})


def _jsonl(id: str, text: str | bytes, *words: str) -> Broken:
    return Broken(id, {"a.jsonl": text}, ("a.jsonl", *words), {"format": "jsonl", "path": ""})


def _parquet(id: str, columns: dict[str, Any], *words: str) -> Broken:
    return _parquet_bytes(id, parquet(columns), *words)


def _parquet_bytes(id: str, content: bytes, *words: str) -> Broken:
    return Broken(id, {"a.parquet": content}, words, {"format": "parquet", "path": "a.parquet"})


def _images(id: str, files: dict[str, bytes], *words: str) -> Broken:
    data = {"format": "images", "path": ""}
    return Broken(id, files, words, data, {"features": IMAGES, "model": {"kind": "cnn"}})


def parquet(columns: dict[str, Any]) -> bytes:
    """A Parquet file."""
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream)
    return stream.getvalue()


def image(kind: str = "PNG") -> bytes:
    """An image file."""
    stream = io.BytesIO()
    Image.new("L", (8, 8)).save(stream, kind)
    return stream.getvalue()


def with_row(row: str, text: str = GOOD) -> str:
    """The good table with one more row, the 32nd."""
    return f"{text}{row}\n"


CSV = [
    _csv("empty", "", "is empty"),
    _csv("row too long", with_row("1,n,1,1"), "Row 32 of", "has 4 columns, but the header has 3"),
    _csv("same name twice", GOOD.replace("side", "size", 1), "contains 'size' 2 t"),
    _csv("UTF-16 without mark", GOOD.encode("utf-16-le"), "NUL", "encoding: utf-16-le"),
    _csv("decimal comma", GOOD.replace(",", ";").replace(".", ","), "decimal", "'0,5' in row 2"),
    _csv("text among numbers", with_row("big,n,1"), "Column 'size'", "'big' in row 32"),
    _csv("label misspelt", GOOD.replace("label", "lable"), "did you mean 'lable'?"),
    _csv("label missing", with_row("1,n,"), "Label 'label' is missing in 1 row, first in row 32"),
    _whole("one class", "x,label\n1,a\n2,a\n", "Label 'label' is 'a' in every row"),
    _csv("page", b"<!DOCTYPE html>\n<p>not, found</p>\n", "is an HTML page, not CSV"),
    Broken(
        "other columns",
        {"a.csv": GOOD, "b.csv": GOOD.replace("side", "edge", 1)},
        ("b.csv differ from the c", "lacks side and has also edge"),
        {"format": "csv", "path": "*.csv"},
    ),
    Broken(
        "gzip cut off",
        {"a.csv.gz": gzip.compress(GOOD.encode())[:-9]},
        ("a.csv.gz is not a complete gzip file",),
        {"format": "csv", "path": "a.csv.gz"},
    ),
]
JSONL = [
    _jsonl("line cut off", LINES + '{"size": 1,', "Line 31 of", "not a JSON object"),
    _jsonl("text, then number", LINES + '{"size": "big", "label": 1}', "Key 'size'", "31 of"),
]
PARQUET = [
    _parquet_bytes(
        "cut off", parquet({"x": [1], "label": [0]})[:-20], "not a complete Parquet file"
    ),
    _parquet("label null", {"x": [1, 2, 3], "label": [0, 1, None]}, "missing in 1 row", "row 3 of"),
]
PICTURES = [
    _images("no class folders", {"a.png": image()}, "No file matches"),
    _images(
        "truncated image",
        {"a/1.png": image(), "b/1.png": image(), "b/2.png": image()[:-30]},
        "b/2.png cannot be decoded",
    ),
]
BROKEN = [*CSV, *JSONL, *PARQUET, *PICTURES]
