"""Data that nothing can be learned from is refused, with what to change."""

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
    [{}, {"stratify": True}, {"order_by": "x"}, {"weight": "x"}, {"task": "regression"}],
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
    assert note == (
        f"left out 32 rows without a label (data.unlabelled: skip), first row 2 of {tmp_path}/a.csv"
    )


def test_without_any_label_there_is_nothing_to_leave_out(tmp_path, refusal):
    write(tmp_path, [""] * 40)
    assert "'label' is missing in all 40 rows" in refusal(tmp_path, unlabelled="skip")


def test_a_label_that_cannot_be_used_is_named_with_its_row_beside_some_left_out(tmp_path, refusal):
    write(tmp_path, [3, "", 1, -1, *[0, 1] * 20])
    message = refusal(tmp_path, task="count", unlabelled="skip")
    assert f"is '-1.0' in row 5 of {tmp_path}/a.csv" in message


def test_a_number_that_is_nan_is_a_missing_label(tmp_path, refusal):
    write(tmp_path, [0, 1, "nan"] * 20)
    assert "row 4" in refusal(tmp_path)


@pytest.mark.parametrize("name", ["Nan", "NaN", "nan"])
def test_a_class_may_be_called_nan(tmp_path, generate, name):
    write(tmp_path, ["cat", name, "dog"] * 20)
    examples = [one for split in generate(tmp_path, task="multiclass").values() for one in split]
    labels = Counter(one.features.feature["label"].bytes_list.value[0] for one in examples)
    assert labels == {b"cat": 20, name.encode(): 20, b"dog": 20}


@pytest.mark.parametrize(("odd", "shown"), [("-Infinity", "-inf"), ("1e39", "inf")])
def test_an_infinite_number(tmp_path, refusal, generate, odd, shown):
    rows = [f"{i % 2},{i / 4}," for i in range(20)]
    (tmp_path / "a.csv").write_text("\n".join(["label,x,empty", *rows, f"1,{odd},", *rows]) + "\n")
    assert f"Column 'x' is {shown} in row 22 of {tmp_path}/a.csv" in refusal(tmp_path)
    kept = generate(tmp_path, mixed_columns=("x",))
    assert sum(map(len, kept.values())) == 41, "the config says that it is no number"


def test_one_value_of_a_regression_label_is_a_note(tmp_path, execute):
    write(tmp_path, [1.5] * 40)
    assert read_notes(execute(tmp_path, task="regression")).sentences == [
        "label 'label' is 1.5 in every row, so a model cannot learn from the data: check data.label"
        " and the data"
    ]


@pytest.mark.parametrize(("odd", "shown"), [("-1", "-1.0"), ("2.5", "2.5"), ("many", "many")])
def test_a_count_that_is_none(tmp_path, refusal, odd, shown):
    write(tmp_path, [*[0, 3] * 10, odd, *[0, 7] * 10])
    message = refusal(tmp_path, task="count")
    assert f"Label 'label' is '{shown}' in row 22 of {tmp_path}/a.csv, but task: count" in message
    assert "needs a whole number that is not negative in every row" in message
    assert message.endswith("or choose task: regression.")


@pytest.mark.parametrize(
    ("order", "odd"),
    [(["low", "mid", "high"], "hgih"), ([1, 2, 3], 4), ([100_000, 1_000_000, 20_000_001], 7)],
)
def test_a_class_that_the_order_lacks(tmp_path, refusal, order, odd):
    write(tmp_path, [*order * 7, odd, *order * 7])
    message = refusal(tmp_path, task={"kind": "ordinal", "order": order})
    assert f"Label 'label' is '{odd}' in row 23 of {tmp_path}/a.csv, but task: ordinal" in message
    assert f"needs one of {', '.join(map(str, order))} (task.order) in every row" in message


def test_two_classes_for_a_multiclass_task_are_a_note(tmp_path, execute):
    write(tmp_path, ["yes", "no"] * 20)
    (note,) = read_notes(execute(tmp_path, task="multiclass")).sentences
    assert note.startswith("label 'label' has 2 classes ('no', 'yes'): with task: binary, the run")


def test_a_class_may_be_a_number_or_a_name(tmp_path, generate):
    write(tmp_path, [*range(10), "unknown"] * 10)
    assert sum(map(len, generate(tmp_path).values())) == 110


def test_an_empty_share(tmp_path, refusal):
    write(tmp_path, [0, 1] * 20)
    message = refusal(tmp_path, splits={"train": 1000, "eval": 1})
    assert "Split 'eval' has no rows (rows per split: train 40, eval 0)" in message
    assert "give the split a larger share in data.splits" in message


def test_one_glob_per_split(tmp_path, generate):
    write(tmp_path, [0, 1] * 20, "train-1.csv")
    write(tmp_path, [0, 1] * 20, "train-2.csv")
    write(tmp_path, [1, 0, 1], "test.csv")
    splits = generate(tmp_path, splits={"train": "train-*", "eval": "test.csv"})
    assert {name: len(examples) for name, examples in splits.items()} == {"train": 80, "eval": 3}


def test_a_glob_without_files(tmp_path, refusal):
    write(tmp_path, [0, 1] * 20)
    message = refusal(tmp_path, splits={"train": "a.csv", "eval": "b.csv"})
    assert f"No file matches '{tmp_path}/b.csv'" in message
    assert "did you mean" in message


def test_a_class_that_is_never_trained_on(tmp_path, refusal):
    write(tmp_path, ["cat", "dog"] * 20, "train.csv")
    write(tmp_path, ["cat", "cow", "cow", "ape"], "test.csv")
    message = refusal(tmp_path, splits={"train": "train.csv", "eval": "test.csv"})
    assert (
        "Class 'ape' of label 'label' occurs 1 time in split 'eval' but never in 'train'" in message
    )
    assert "(classes that 'train' lacks: 2)" in message


def test_a_class_that_is_missing_in_eval_alone_is_a_note(tmp_path, execute):
    write(tmp_path, ["cat", "dog", "cow"] * 20, "train.csv")
    write(tmp_path, ["cat", "dog"], "test.csv")
    examples = execute(tmp_path, splits={"train": "train.csv", "eval": "test.csv"})
    assert read_notes(examples).sentences == [
        "split 'eval' has no example of 1 class that 'train' has, such as 'cow'"
    ]


def test_files_that_are_no_data_are_left_alone(tmp_path, generate):
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


def test_a_chunk_that_fails_leaves_no_shard(tmp_path):
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


def test_a_folder_without_files(tmp_path, refusal):
    (tmp_path / "folder").mkdir()
    assert f"No file matches '{tmp_path}/*'" in refusal(tmp_path)


def write_weights(folder: Path, odd: str, others: str = "") -> None:
    """Rows of which one has an odd weight."""
    rows = [f"{i % 2},{i},{others or i / 4}" for i in range(20)]
    lines = ["label,x,trust", *rows, f"1,0,{odd}", *rows]
    (folder / "a.csv").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("odd", "weight", "words"),
    [
        ("-0.5", "trust", "Weight 'trust' is -0.5 in row 22 of {}/a.csv: expected a number"),
        ("", "trust", "Weight 'trust' is missing in row 22 of"),
        ("nan", "trust", "Weight 'trust' is nan in row 22 of"),
        ("1e39", "trust", "Weight 'trust' is inf in row 22 of"),
        (
            "0",
            "trusts",
            "data.weight is 'trusts', but there is no such column; did you mean 'trust'?",
        ),
    ],
)
def test_a_weight_of_no_use(tmp_path, refusal, odd, weight, words):
    write_weights(tmp_path, odd)
    assert words.format(tmp_path) in refusal(tmp_path, weight=weight)


def test_weights_are_numbers_of_which_some_count(tmp_path, refusal, generate):
    write_weights(tmp_path, "0")
    assert sum(map(len, generate(tmp_path, weight="trust").values())) == 41
    write_weights(tmp_path, "much", "much")
    assert "Weight 'trust' is much in row 2 of" in refusal(tmp_path, weight="trust")
    write_weights(tmp_path, "0", "0")
    message = refusal(tmp_path, weight="trust")
    assert message.startswith("Weight 'trust' is 0 in all ")
    assert "rows of split 'train', so that no row of the split counts" in message


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("x" * 100, "x" * 80),
        (("x" + "é" * 99).encode(), "x" + "é" * 79),
        (("x" + "\U0001f600" * 99).encode(), "x" + "\U0001f600" * 79),
        (b"a\xff", "a\\xff"),
        (1.5, "1.5"),
    ],
)
def test_a_long_value_is_cut_between_characters(value: object, expected: str) -> None:
    assert excerpt(value) == expected
