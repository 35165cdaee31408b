"""Data of many kinds, as newcomers have it, and keys of its first config."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

Rows = list[dict[str, Any]]
ROWS = 240
CLASSES = ("cat", "dog")
WORDS = "film was long and actors were good but nobody in the room liked how it ended"
RANDOM = Random(1)  # noqa: S311 - no secret


@dataclass(frozen=True)
class Kind:
    """Data of one kind: how to write it below a folder, and keys of the expected config."""

    id: str
    write: Callable[[Path], str]
    """Writes the data below a folder, and gives the path for `init`, relative to the folder."""
    expected: dict[str, Any] = field(default_factory=dict)
    """The expected values by dotted key."""


def houses() -> Rows:
    """A table with an identifier, text of few values, gaps, and prices as the last column."""
    return [
        {
            "id": 7001 + 3 * row,
            "rooms": RANDOM.randint(1, 9),
            "area": "" if row % 17 == 3 else round(RANDOM.uniform(30, 300), 1),
            "town": RANDOM.choice(["Bonn", "Köln", "Ulm"]),
            "price": round(RANDOM.uniform(90_000, 900_000), 2),
        }
        for row in range(ROWS)
    ]


def customers() -> Rows:
    return [
        {
            "customer_id": f"C{row:05d}",
            "churned": RANDOM.choice(["yes", "no", "no"]),
            "plan": RANDOM.choice("abc"),
            "age": RANDOM.randint(18, 90),
            "spent": RANDOM.uniform(0, 1e4),
        }
        for row in range(ROWS)
    ]


def reviews() -> Rows:
    return [
        {
            "review": " ".join(RANDOM.choices(WORDS.split(), k=12)) + f" {row}",
            "stars": RANDOM.randint(1, 5),
        }
        for row in range(ROWS)
    ]


def sales() -> Rows:
    start = date(2024, 1, 1)
    return [
        {
            "date": (start + timedelta(days=row)).isoformat(),
            "shop": RANDOM.choice("AB"),
            "rain": round(RANDOM.random(), 3),
            "sales": RANDOM.randint(100, 900),
        }
        for row in range(ROWS)
    ]


def flowers() -> Rows:
    return [
        {
            "width": round(RANDOM.uniform(0, 5), 2),
            "length": round(RANDOM.uniform(0, 5), 2),
            "species": RANDOM.choice(["rose", "iris", "lily"]),
        }
        for _ in range(ROWS)
    ]


def text(rows: Rows, delimiter: str = ",", header: bool = True, quote: bool = True) -> str:
    """The rows as CSV."""
    stream = io.StringIO()
    quoting = csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE
    writer = csv.writer(stream, delimiter=delimiter, lineterminator="\n", quoting=quoting)
    if header:
        writer.writerow(rows[0])
    writer.writerows(row.values() for row in rows)
    return stream.getvalue()


def _file(name: str, content: str | bytes) -> Callable[[Path], str]:
    def write(folder: Path) -> str:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return name

    return write


def written(folder: Path, files: dict[str, Any], path: str = "") -> str:
    """Writes files below a folder, and gives a path, by default of the first file."""
    for name, content in files.items():
        _file(name, content)(folder)
    return path or next(iter(files))


def _files(path: str, files: dict[str, Any]) -> Callable[[Path], str]:
    return lambda folder: written(folder, files, path)


def picture(colour: int) -> bytes:
    """A small PNG."""
    stream = io.BytesIO()
    Image.new("L", (8, 8), colour % 256).save(stream, "PNG")
    return stream.getvalue()


def _pictures(*names: str) -> dict[str, Any]:
    return {name: picture(7 * index) for index, name in enumerate(names)}


def written_classes(folder: str, count: int = 12) -> dict[str, Any]:
    return _pictures(*(f"{folder}/{name}/{n:03}.png" for n in range(count) for name in CLASSES))


def parquet(columns: dict[str, Any]) -> bytes:
    """A Parquet file."""
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream)
    return stream.getvalue()


def _columns(rows: Rows) -> dict[str, list[Any]]:
    return {name: [None if row[name] == "" else row[name] for row in rows] for name in rows[0]}


def _with(rows: Rows, **changes: Callable[[int, dict[str, Any]], Any]) -> Rows:
    return [
        {**row, **{name: change(n, row) for name, change in changes.items()}}
        for n, row in enumerate(rows)
    ]


def _kinds() -> Iterator[Kind]:
    yield Kind(
        "table of numbers and text",
        _file("houses.csv", text(houses())),
        {
            "data.label": "price",
            "task": "regression",
            "features.id.type": "ignore",
            "name": "houses",
        },
    )
    yield Kind(
        "semicolons, decimal commas and German dates",
        _file(
            "haus.csv",
            text(
                _with(
                    houses(),
                    area=lambda n, row: str(row["area"]).replace(".", ","),
                    price=lambda n, row: str(row["price"]).replace(".", ","),
                    sold=lambda n, row: f"{1 + n % 28:02}.{1 + n % 12:02}.2024",
                ),
                ";",
            ),
        ),
        {"data.csv": {"decimal": ","}, "data.label": "price", "data.order_by": None},
    )
    yield Kind(
        "no header, tabs and lone quotation marks",
        _file(
            "sms.tsv",
            "".join(
                f'{"spam" if n % 3 else "ham"}\tcall "{n} of the film now\n' for n in range(ROWS)
            ),
        ),
        {"data.label": "column_1", "task": "binary", "features.column_2.type": "text"},
    )
    yield Kind(
        "no header and numbers",
        _file("flowers.data", text(flowers(), header=False)),
        {"data.label": "column_3", "task": "multiclass"},
    )
    yield Kind(
        "sentences with stars",
        _file("reviews.csv", text(reviews())),
        {"data.label": "stars", "task": "multiclass", "features.review.type": "text"},
    )
    yield Kind(
        "days in order",
        _file("sales.csv", text(sales())),
        {"data.label": "sales", "data.order_by": "date", "task": "regression"},
    )
    yield Kind(
        "prices with currency, cp1252 and gzip",
        _file(
            "prices.csv.gz",
            gzip.compress(
                text(_with(houses(), price=lambda n, row: f"${row['price']:,.2f}")).encode("cp1252")
            ),
        ),
        {"data.label": "price", "task": "regression"},
    )
    yield Kind(
        "a rare class and labels that are missing",
        _file(
            "fraud.csv",
            text(
                _with(
                    houses(),
                    fraud=lambda n, row: "" if n % 50 == 7 else int(n % 60 == 0),
                )
            ),
        ),
        {
            "data.label": "fraud",
            "data.unlabelled": "skip",
            "data.stratify": True,
            "evaluate.metrics": ["average_precision", "auc", "log_loss"],
        },
    )
    yield Kind(
        "names of columns that YAML and terminals treat as special",
        _file(
            "odd.csv",
            text(
                [
                    {"a: b #c": n % 7, "yes": n % 5, "\x1b[31mred": n % 3, "is it, now?": n % 2}
                    for n in range(ROWS)
                ]
            ),
        ),
        {"data.label": "is it, now?"},
    )
    yield Kind(
        "Parquet with lists and times",
        _file(
            "trips.parquet",
            parquet(
                _columns(flowers())
                | {
                    "times": [[n, n + 1][: 1 + n % 2] for n in range(ROWS)],
                    "at": pa.array([86_400_000_000 * n for n in range(ROWS)], pa.timestamp("us")),
                }
            ),
        ),
        {"data.format": "parquet", "data.label": "species", "data.order_by": "at"},
    )
    yield Kind(
        "Parquet with encoded pictures",
        _file(
            "encoded.parquet",
            parquet(
                {"image": [picture(n) for n in range(ROWS)], "label": [n % 10 for n in range(ROWS)]}
            ),
        ),
        {"data.label": "label", "task": "multiclass", "features.image": {"type": "image"}},
    )
    yield Kind(
        "files of splits",
        _files("parts", {f"parts/{n}.csv": text(flowers()) for n in ("train", "test")}),
        {"data.splits": {"train": "train*.csv*", "eval": "test*.csv*"}},
    )
    yield Kind(
        "a folder of pictures per class",
        _files("pets", written_classes("pets")),
        {"data.format": "images", "data.path": "pets", "task": "binary", "name": "pets"},
    )
    yield Kind(
        "folders of splits with folders of classes",
        _files("split", written_classes("split/train") | written_classes("split/val")),
        {"data.splits": {"train": "train/*/*", "eval": "val/*/*"}},
    )
    yield Kind(
        "classes in the names of pictures",
        _files("named", _pictures(*(f"named/{c}.{n}.png" for n in range(12) for c in CLASSES))),
        {
            "data.format": "csv",
            "data.path": "pictures.csv",
            "features.picture": {"type": "image", "from": "path", "folder": "named"},
        },
    )


KINDS = list(_kinds())
