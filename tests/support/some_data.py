"""Data of many kinds, as newcomers have it, and what a first config has to say of each."""

from __future__ import annotations

import csv
import gzip
import io
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
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


def idx(items: int, *shape: int) -> bytes:
    """An IDX file of images or labels."""
    size, values = struct.pack(f">{1 + len(shape)}I", items, *shape), items
    for side in shape:
        values *= side
    magic = 0x801 if not shape else 0x803
    return struct.pack(">I", magic) + size + bytes(n % 10 for n in range(values))


def _example_class() -> Any:
    """tf.Example without TensorFlow: the same fields by the same numbers."""
    file = descriptor_pb2.FileDescriptorProto(name="an_example.proto", package="a", syntax="proto3")
    label = descriptor_pb2.FieldDescriptorProto

    def message(name: str, *fields: tuple[str, int, int, int, str]) -> Any:
        made = file.message_type.add(name=name)
        for field_name, number, kind, many, type_name in fields:
            added = made.field.add(name=field_name, number=number, type=kind, label=many)
            if type_name:
                added.type_name = f".a.{type_name}"
        return made

    one, many = label.LABEL_OPTIONAL, label.LABEL_REPEATED
    inner = label.TYPE_MESSAGE
    message("Texts", ("value", 1, label.TYPE_BYTES, many, ""))
    message("Floats", ("value", 1, label.TYPE_FLOAT, many, ""))
    message("Integers", ("value", 1, label.TYPE_INT64, many, ""))
    message(
        "Feature",
        ("bytes_list", 1, inner, one, "Texts"),
        ("float_list", 2, inner, one, "Floats"),
        ("int64_list", 3, inner, one, "Integers"),
    )
    entry = message(
        "Pair", ("key", 1, label.TYPE_STRING, one, ""), ("value", 2, inner, one, "Feature")
    )
    del entry
    message("Features", ("feature", 1, inner, many, "Pair"))
    message("Example", ("features", 1, inner, one, "Features"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("a.Example"))


def records(rows: Rows) -> bytes:
    """A TFRecord file; nothing here reads its checksums."""
    made, content = _example_class(), b""
    for row in rows:
        example = made()
        for name, value in row.items():
            pair = example.features.feature.add(key=name)
            if isinstance(value, float):
                pair.value.float_list.value.append(value)
            elif isinstance(value, int):
                pair.value.int64_list.value.append(value)
            else:
                pair.value.bytes_list.value.append(str(value).encode())
        data = example.SerializeToString()
        content += struct.pack("<QI", len(data), 0) + data + struct.pack("<I", 0)
    return content


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
        "label in the middle by its name",
        _file("customers.csv", text(customers())),
        {"data.label": "churned", "task": "binary", "features.customer_id.type": "ignore"},
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
        "a name that is also a value of its column",
        _file("staff.csv", text([{"rose": row["species"], **row} for row in flowers()])),
        {"data.label": "species"},
    )
    yield Kind(
        "coordinates with the names of letters",
        _file(
            "points.csv",
            text(
                [
                    {"price": r["price"], "x": r["rooms"], "y": n, "z": n % 7}
                    for n, r in enumerate(houses())
                ]
            ),
        ),
        {"data.label": "price"},
    )
    yield Kind(
        "no header and numbers",
        _file("flowers.data", text(flowers(), header=False)),
        {"data.label": "column_3", "task": "multiclass"},
    )
    yield Kind(
        "a first column without a name, as pandas writes it",
        _file("pandas.csv", text([{"": n, **row} for n, row in enumerate(flowers())])),
        {"data.label": "species", "features": {"Unnamed: 0": {"type": "ignore"}}},
    )
    yield Kind(
        "carets between cells",
        _file("flowers.txt", text(flowers(), "^")),
        {"data.label": "species", "data.csv": {"delimiter": "^"}},
    )
    yield Kind(
        "sentences with stars",
        _file("reviews.csv", text(reviews())),
        {"data.label": "stars", "task": "multiclass", "features.review.type": "text"},
    )
    yield Kind(
        "sentences as JSON lines",
        _file("reviews.jsonl", "".join(json.dumps(row) + "\n" for row in reviews())),
        {"data.format": "jsonl", "data.label": "stars", "features.review.type": "text"},
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
        "words for labels that are missing",
        _file(
            "loans.csv",
            text(_with(flowers(), approved=lambda n, row: ["yes", "no", "NaN", "?"][n % 7 % 4])),
        ),
        {
            "data.label": "approved",
            "data.csv": {"missing_values": ["?"]},
            "data.unlabelled": "skip",
            "task": "binary",
        },
    )
    yield Kind(
        "a column that gives the label away",
        _file(
            "leak.csv", text(_with(customers(), left=lambda n, row: int(row["churned"] == "yes")))
        ),
        {"data.label": "churned", "features.left.type": "ignore"},
    )
    yield Kind(
        "numbers and text in a column",
        _file(
            "mixed.csv", text(_with(flowers(), size=lambda n, r: "big" if n % 9 == 0 else n % 7))
        ),
        {"data.label": "species", "features.size.type": "categorical"},
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
        "Parquet under the name of a CSV",
        _file("really.csv", parquet(_columns(flowers()))),
        {"data.format": "parquet", "data.label": "species"},
    )
    yield Kind(
        "files of splits",
        _files("parts", {f"parts/{n}.csv": text(flowers()) for n in ("train", "test")}),
        {"data.splits": {"train": "train*.csv*", "eval": "test*.csv*"}},
    )
    yield Kind(
        "train.csv with a test.csv that lacks the label",
        _files(
            "contest",
            {
                "contest/train.csv": text(flowers()),
                "contest/test.csv": text(
                    [{k: r[k] for k in ("width", "length")} for r in flowers()]
                ),
            },
        ),
        {"data.path": "contest/train.csv", "data.label": "species"},
    )
    yield Kind(
        "files of one table in folders",
        _files("days", {f"days/{day}/rows.csv": text(flowers()) for day in ("a", "b")}),
        {"data.path": "days/*/*.csv*", "data.label": "species"},
    )
    yield Kind(
        "TFRecord",
        _file("flowers.tfrecord", records(flowers())),
        {"data.format": "tfrecord", "data.label": "species"},
    )
    yield Kind(
        "IDX",
        _files(
            "mnist",
            {
                f"mnist/{part}-{what}-ubyte": idx(40, *shape)
                for part in ("train", "t10k")
                for what, shape in (("images-idx3", (4, 4)), ("labels-idx1", ()))
            },
        ),
        {"data.format": "idx", "data.splits": {"train": "train*", "eval": "t10k*"}},
    )
    yield Kind(
        "a folder of pictures per class",
        _files("pets", written_classes("pets")),
        {"data.format": "images", "data.path": "pets", "task": "binary", "name": "pets"},
    )
    yield Kind(
        "a glob of pictures",
        _files("some/*/*/*.png", written_classes("some/pets")),
        {"data.format": "images", "data.path": "some/*/*/*.png"},
    )
    yield Kind(
        "folders of classes one level below",
        _files("downloads", written_classes("downloads/pets")),
        {"data.format": "images", "data.path": "downloads/pets"},
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
    names = [f"{n:03}.png" for n in range(24)]
    yield Kind(
        "a table of paths beside the pictures",
        _files(
            "shop",
            _pictures(*(f"shop/photos/{name}" for name in names))
            | {
                "shop/items.csv": text(
                    [{"photo": n, "kind": "ab"[i % 2]} for i, n in enumerate(names)]
                )
            },
        ),
        {
            "data.path": "shop/items.csv",
            "data.label": "kind",
            "features.photo": {"type": "image", "from": "path", "folder": "shop/photos"},
        },
    )


KINDS = list(_kinds())
