"""Labels, weights and splits that cannot be trained on are refused with their place."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import tensorflow as tf

from components.example_gen.columns.encoded import excerpt
from components.example_gen.executor import ShardWriter, shard_name
from components.example_gen.notes import read_notes
from trainer_module.errors import DataError


def write(folder: Path, labels: list[object], name: str = "a.csv") -> None:
    """Writes rows with those labels."""
    rows = [f"{label},{row}" for row, label in enumerate(labels)]
    (folder / name).write_text("\n".join(["label,x", *rows]) + "\n")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"order_by": "x"},
    ],
)
def test_rows_without_a_label_may_be_left_out(tmp_path, execute, read_split, options):
    # The newest have none yet: without them there would be no eval split.
    write(tmp_path, ["nan", 1, "", *[0, 1] * 20, *[""] * 30])
    examples = execute(tmp_path, unlabelled="skip", **{"task": "binary", **options})
    kept = [read_split(examples, split) for split in ("train", "eval")]
    assert all(kept)
    read = [tf.train.Example.FromString(e).features.feature["x"] for split in kept for e in split]
    rows = [number for x in read for number in (*x.float_list.value, *x.int64_list.value)]
    assert sorted(rows) == [1, *range(3, 43)]
    (note,) = read_notes(examples).sentences
    assert "32 rows" in note
    assert f"row 2 of {tmp_path}/a.csv" in note


def test_a_number_that_is_nan_is_a_missing_label(tmp_path, refusal):
    write(tmp_path, [0, 1, "nan"] * 20)
    assert "row 4" in refusal(tmp_path)


@pytest.mark.parametrize("name", ["Nan", "NaN", "nan"])
def test_a_class_may_be_called_nan(tmp_path, generate, name):
    write(tmp_path, ["cat", name, "dog"] * 20)
    examples = [one for split in generate(tmp_path, task="multiclass").values() for one in split]
    labels = Counter(one.features.feature["label"].bytes_list.value[0] for one in examples)
    assert labels == {b"cat": 20, name.encode(): 20, b"dog": 20}


@pytest.mark.parametrize(
    ("odd", "shown"),
    [
        ("-Infinity", "-inf"),
    ],
)
def test_infinite_number_is_refused_in_numeric_columns(tmp_path, refusal, generate, odd, shown):
    rows = [f"{i % 2},{i / 4}," for i in range(20)]
    (tmp_path / "a.csv").write_text("\n".join(["label,x,empty", *rows, f"1,{odd},", *rows]) + "\n")
    assert f"Column 'x' is {shown} in row 22 of {tmp_path}/a.csv" in refusal(tmp_path)
    kept = generate(tmp_path, mixed_columns=("x",))
    assert sum(map(len, kept.values())) == 41, "a column that is declared as no number"


@pytest.mark.parametrize(
    ("odd", "shown"),
    [
        ("-1", "-1.0"),
        ("2.5", "2.5"),
    ],
)
def test_label_that_is_no_count_is_refused(tmp_path, refusal, odd, shown):
    write(tmp_path, [*[0, 3] * 10, odd, *[0, 7] * 10])
    message = refusal(tmp_path, task="count")
    assert f"'label' is '{shown}' in row 22 of {tmp_path}/a.csv, but task: count" in message


@pytest.mark.parametrize(
    ("order", "odd"),
    [
        (["low", "mid", "high"], "hgih"),
        ([100_000, 1_000_000, 20_000_001], 7),
    ],
)
def test_class_outside_of_task_order_is_refused(tmp_path, refusal, order, odd):
    write(tmp_path, [*order * 7, odd, *order * 7])
    message = refusal(tmp_path, task={"kind": "ordinal", "order": order})
    assert f"'label' is '{odd}' in row 23 of {tmp_path}/a.csv, but task: ordinal" in message
    assert f"{', '.join(map(str, order))} (task.order)" in message


def test_empty_split_is_refused(tmp_path, refusal):
    write(tmp_path, [0, 1] * 20)
    message = refusal(tmp_path, splits={"train": 1000, "eval": 1})
    assert "train 40, eval 0" in message
    assert "data.splits" in message


def test_each_split_has_the_rows_of_its_glob(tmp_path, generate):
    write(tmp_path, [0, 1] * 20, "train-1.csv")
    write(tmp_path, [0, 1] * 20, "train-2.csv")
    write(tmp_path, [1, 0, 1], "test.csv")
    splits = generate(tmp_path, splits={"train": "train-*", "eval": "test.csv"})
    assert {name: len(examples) for name, examples in splits.items()} == {"train": 80, "eval": 3}


def test_glob_without_files_is_refused(tmp_path, refusal):
    write(tmp_path, [0, 1] * 20)
    message = refusal(tmp_path, splits={"train": "a.csv", "eval": "b.csv"})
    assert f"'{tmp_path}/b.csv'" in message


def test_class_missing_in_train_is_refused(tmp_path, refusal):
    write(tmp_path, ["cat", "dog"] * 20, "train.csv")
    write(tmp_path, ["cat", "cow", "cow", "ape"], "test.csv")
    message = refusal(tmp_path, splits={"train": "train.csv", "eval": "test.csv"})
    assert "'ape'" in message
    assert "'train' lacks: 2" in message


def test_hidden_files_and_folders_are_ignored(tmp_path, generate):
    write(tmp_path, [0, 1] * 20)
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".a.csv.crc").write_bytes(b"crc")
    (tmp_path / "folder").mkdir()
    assert sum(map(len, generate(tmp_path).values())) == 40


def write_half(shard: Path, folder: Path) -> None:
    """Fails while it writes a shard."""
    with ShardWriter(str(folder)) as writer:
        writer.write(str(shard), [b"half"])
        raise DataError("a damaged file")


def test_failed_chunk_leaves_no_shard(tmp_path):
    shard, folder = tmp_path / shard_name(0, 1), tmp_path / "incomplete"
    folder.mkdir()
    with pytest.raises(DataError):
        write_half(shard, folder)
    assert not shard.exists()
    for _ in range(2):
        with ShardWriter(str(folder)) as writer:
            writer.write(str(shard), [b"one"])
            writer.write(str(shard), [b"two"])
    records = tf.data.TFRecordDataset(str(shard), "GZIP").as_numpy_iterator()
    assert list(records) == [b"one", b"two"]


def write_weights(folder: Path, odd: str, others: str = "") -> None:
    """Rows of which one has an odd weight."""
    rows = [f"{i % 2},{i},{others or i / 4}" for i in range(20)]
    lines = ["label,x,trust", *rows, f"1,0,{odd}", *rows]
    (folder / "a.csv").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("odd", "weight", "words"),
    [
        ("-0.5", "trust", "'trust' is -0.5 in row 22 of {}/a.csv"),
        ("", "trust", "'trust' is missing in row 22 of"),
        ("1e39", "trust", "'trust' is inf in row 22 of"),
    ],
)
def test_invalid_weight_is_refused_with_its_row(tmp_path, refusal, odd, weight, words):
    write_weights(tmp_path, odd)
    assert words.format(tmp_path) in refusal(tmp_path, weight=weight)


@pytest.mark.slow
def test_weights_of_zero_are_accepted_unless_all_are_zero(tmp_path, refusal, generate):
    write_weights(tmp_path, "0")
    assert sum(map(len, generate(tmp_path, weight="trust").values())) == 41
    write_weights(tmp_path, "much", "much")
    assert "'trust' is much in row 2 of" in refusal(tmp_path, weight="trust")
    write_weights(tmp_path, "0", "0")
    assert "'trust' is 0 in all " in refusal(tmp_path, weight="trust")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (("x" + "é" * 99).encode(), "x" + "é" * 79),
        (b"a\xff", "a\\xff"),
    ],
)
def test_a_long_value_is_cut_between_characters(value: object, expected: str) -> None:
    assert excerpt(value) == expected


@pytest.mark.parametrize("name", ["two\nlines", "two\rlines", "line\n"])
def test_a_class_with_a_line_break_is_refused_with_its_row(tmp_path, refusal, name):
    write(tmp_path, ["cat", f'"{name}"', "dog"] * 20)
    message = refusal(tmp_path, task="multiclass")
    assert "'label'" in message
    assert "row 3" in message
