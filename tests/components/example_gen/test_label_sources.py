"""Labels that are optional, are numbers in text, or come from separate files by key."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from components.example_gen.first_look import check_table
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.notes import read_notes
from components.example_gen.sources import make_source
from components.example_gen.sources.parquet_source import mark_own
from components.example_gen.sources.surveys import merge_surveys, note_columns
from trainer_module.errors import DataError

WRITERS = {
    "csv": lambda rows, path: rows.to_csv(path, index=False),
    "jsonl": lambda rows, path: rows.to_json(path, orient="records", lines=True),
    "parquet": lambda rows, path: rows.to_parquet(path),
}


def settings_of(data_format: str, **changes: object) -> ExampleGenSettings:
    task = {"kind": "generation", **dict(changes.pop("task", {}))}
    given = {"format": data_format, "label": "label", "task": task, "may_lack_label": True}
    return ExampleGenSettings.model_validate({**given, **changes})


@pytest.mark.parametrize("data_format", WRITERS)
@pytest.mark.parametrize("label", [None, "b"])
def test_optional_labels_are_read_where_present(
    tmp_path: Path, data_format: str, label: str | None
) -> None:
    rows = pd.DataFrame({"name": ["x", "y", "z"]} | ({"label": [label] * 3} if label else {}))
    file = tmp_path / f"rows.{data_format}"
    WRITERS[data_format](rows, file)
    source = make_source(settings_of(data_format))
    (files,) = source.plan([str(file)])
    kinds = merge_surveys([source.survey(files)], settings_of(data_format))
    (batch,) = source.read(files, kinds)
    assert batch.rows.to_pydict() == {
        "name": [[b"x"], [b"y"], [b"z"]],
        "label": [[(label or "none").encode()]] * 3,
    }
    # One class of all rows is no reason to refuse them.
    assert check_table(settings_of(data_format), [str(file)]) == {"name", "label"}


def test_missing_label_column_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("name\nx\ny\n")
    for settings in (
        settings_of("csv", task={"conditional": True}, may_lack_label=False),
        settings_of("csv", label="digit", may_lack_label=False),
    ):
        with pytest.raises(DataError, match=f"'{settings.label}'"):
            check_table(settings, [str(file)])


DOLLARS = ["$22,500", "($1,234)", "$7.5", "N/A"], [22500.0, -1234.0, 7.5, None]
EUROS = ["1.200,50 €", "€ 12", "-0,5 €", ""], [1200.5, 12.0, -0.5, None]
THOUSANDS = ["22,500", "950", "1,234.5", "none"], [22500.0, 950.0, 1234.5, None]
SETTINGS = ExampleGenSettings(format="csv", label="price", task="regression")


def write(folder: Path, labels: list[str], files: int = 1) -> None:
    for number in range(files):
        part = labels[number::files]
        lines = (f'{place},"{label}"' for place, label in enumerate(part))
        (folder / f"{number}.csv").write_text("\n".join(["size,price", *lines]) + "\n")


@pytest.mark.parametrize(
    ("data_format", "written"), [("csv", DOLLARS), ("jsonl", EUROS), ("parquet", THOUSANDS)]
)
def test_labels_are_read_from_numbers_in_text(
    tmp_path: Path, read_rows, data_format: str, written: tuple[list[str], list[float | None]]
) -> None:
    texts, numbers = written
    if data_format == "csv":
        write(tmp_path, texts * 5)
    elif data_format == "jsonl":
        lines = [f'{{"size": 1, "price": "{text}"}}\n' for text in texts * 5]
        (tmp_path / "a.jsonl").write_text("".join(lines))
    else:
        pq.write_table(pa.table({"size": [1.0] * 20, "price": texts * 5}), tmp_path / "a.parquet")
    found = read_rows(tmp_path, data_format, label="price", task="regression")
    assert [row["price"] for row in found] == [[n] if n is not None else [] for n in numbers] * 5


def test_number_format_of_labels_is_independent_of_the_order_of_rows(tmp_path: Path) -> None:
    labels = [f"${number:,}.50" for number in range(900, 5900)] + ["$1,000", "soon"]
    kinds = []
    for files in (1, 3):
        folder = tmp_path / str(files)
        folder.mkdir()
        write(folder, random.Random(files).sample(labels, len(labels)), files)  # noqa: S311
        source = make_source(SETTINGS)
        surveys = [source.survey((str(file),)) for file in sorted(folder.glob("*"))]
        kinds.append(merge_surveys(surveys, SETTINGS))
        (note,) = note_columns(surveys, kinds[-1], SETTINGS)
        assert "'price'" in note
        with pytest.raises(DataError, match=r"'soon' in row \d+ of .*\.csv"):
            [list(source.read((str(file),), kinds[-1])) for file in folder.glob("*")]
    assert kinds[0] == kinds[1]
    assert kinds[0].label_number_format == kinds[1].label_number_format


LABELS = "key,label\n"
SPLITS = ("train", "eval")


def write_rows(folder: Path, rows: int = 60, key: Any = str) -> Path:
    """A CSV file of keys and numbers."""
    folder.mkdir(exist_ok=True)
    lines = "".join(f"{key(number)},{number / 2}\n" for number in range(rows))
    (folder / "rows.csv").write_text(f"key,x\n{lines}")
    return folder


def write_labels(path: Path, rows: range, label: int | None = None) -> None:
    path.parent.mkdir(exist_ok=True)
    chosen = [number % 2 if label is None else label for number in rows]
    lines = "".join(f"{n},{value}\n" for n, value in zip(rows, chosen, strict=True))
    path.write_text(LABELS + lines)


def values(examples: dict[str, Any]) -> dict[float, Any]:
    """The labels by the number in their row."""
    features = [e.features.feature for split in examples.values() for e in split]
    return {
        f["x"].float_list.value[0]: [*f["label"].int64_list.value, *f["label"].bytes_list.value]
        for f in features
    }


def labels_of(path: Path, key: str = "key") -> dict[str, Any]:
    return {"labels": {"path": str(path), "key": key}, "unlabelled": "skip"}


def test_rows_get_the_latest_label_of_their_key(tmp_path, execute, read_split):
    rows = write_rows(tmp_path / "rows")
    write_labels(tmp_path / "labels" / "1.csv", range(50))
    write_labels(tmp_path / "labels" / "2.csv", range(40, 44), label=7)  # Corrected later.
    write_labels(tmp_path / "labels" / "3.csv", range(900, 950))  # Of rows elsewhere.
    examples = execute(rows, **labels_of(tmp_path / "labels"))
    found = values(
        {s: [tf.train.Example.FromString(e) for e in read_split(examples, s)] for s in SPLITS}
    )
    right = {n / 2: [7 if 40 <= n < 44 else n % 2] for n in range(50)}
    assert found == right
    (note,) = [n for n in read_notes(examples).sentences if "label" in n]
    assert note.startswith("left out 10 rows")
    assert note.endswith(f"first row 52 of {rows / 'rows.csv'}")


def test_keys_are_compared_as_text(tmp_path, generate):
    """A file of whole numbers and one of text may hold the same keys."""
    rows = write_rows(tmp_path / "rows")
    keys = pa.array([str(number) for number in range(60)])
    table = pa.table({"key": keys, "label": ["no", "yes"] * 30, "other": range(60)})
    pq.write_table(table, tmp_path / "labels.parquet")
    found = values(generate(rows, **labels_of(tmp_path / "labels.parquet")))
    assert found == {n / 2: [[b"no"], [b"yes"]][n % 2] for n in range(60)}


def test_keys_keep_their_leading_zeros(tmp_path, generate):
    rows = write_rows(tmp_path / "rows", key="{:03}".format)
    lines = "".join(f"{number:03},{number % 2}\n" for number in range(60))
    (tmp_path / "labels.csv").write_text(LABELS + lines)
    found = values(generate(rows, **labels_of(tmp_path / "labels.csv")))
    assert found == {n / 2: [n % 2] for n in range(60)}


def test_logged_requests_get_labels_by_their_id(tmp_path, generate):
    ids = [f"r{number}" for number in range(60)]
    table = pa.table({"x": [n / 2 for n in range(60)], "request_id": ids, "model_version": ids})
    (tmp_path / "rows").mkdir()
    marked = table.replace_schema_metadata(mark_own(["request_id", "model_version"]))
    pq.write_table(marked, tmp_path / "rows" / "08-0000-000000.parquet")
    lines = "".join(f'{{"request_id": "r{n}", "label": {n % 3}}}\n' for n in range(60))
    (tmp_path / "labels.jsonl").write_text(lines)
    chosen = labels_of(tmp_path / "labels.jsonl", "request_id")
    found = generate(tmp_path / "rows", "parquet", **chosen)
    assert values(found) == {n / 2: [n % 3] for n in range(60)}
    (names,) = {frozenset(e.features.feature) for split in found.values() for e in split}
    assert names == {"x", "label"}


def test_labels_without_the_key_or_label_are_refused(tmp_path, refusal):
    rows = write_rows(tmp_path / "rows")
    write_labels(tmp_path / "labels.csv", range(60))
    message = refusal(rows, **labels_of(tmp_path / "labels.csv", "id"))
    assert message.startswith(f"data.labels.key: {rows}/rows.csv has no column 'id'")
    (tmp_path / "other.csv").write_text("key,answer\n1,2\n")
    message = refusal(rows, **labels_of(tmp_path / "other.csv"))
    assert "other.csv has no column 'label'" in message
    assert "'label' is missing in all 60 rows" in refusal(
        write_rows(rows, key=lambda n: n + 1000), **labels_of(tmp_path / "labels.csv")
    )
