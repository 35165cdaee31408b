"""What Transform makes of each type of column, missing values and labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_transform.tf_metadata import metadata_io

from tests.support.trainer_data import Transformed, make_image, run_transform
from trainer_module.errors import DataError, TrainingError
from trainer_module.features import categorical, vocabularies, vocabulary_orders
from trainer_module.features.raw_columns import dense_strings
from trainer_module.features.vocabularies import SumCounts
from trainer_module.features.vocabulary_orders import ByFrequency, ClassOrder, Counts, Order
from trainer_module.preprocessing import preprocessing_fn
from trainer_module.problem import Problem
from trainer_module.settings import Task, TrainerSettings

FULL = {
    "fare": 50.0,
    "constant": 0.1,
    "miles": 1.0,
    "area": 8,
    "company": "Ace",
    "trip id": 1,
    "tipped": 1.0,
}
"""A row of `trips` with nothing missing."""


def test_missing_numbers_become_the_mean_and_are_flagged(trips: Transformed) -> None:
    transformed = trips.transform(trips.train)
    miles = np.array([np.nan if r["miles"] is None else r["miles"] for r in trips.train])
    expected = (miles - np.nanmean(miles)) / np.nanstd(miles)
    np.testing.assert_allclose(
        transformed["miles"][:, 0], np.nan_to_num(expected), rtol=1e-3, atol=1e-3
    )
    np.testing.assert_array_equal(transformed["miles_missing"][:, 0], np.isnan(miles))
    assert "fare_missing" not in transformed, "a column that is always there needs no flag"


def test_nan_counts_as_missing(trips: Transformed) -> None:
    transformed = trips.transform([FULL | {"miles": float("nan"), "fare": float("nan")}])
    assert transformed["miles"] == 0
    assert transformed["miles_missing"] == 1
    assert transformed["fare"] == 0


def test_derived_columns_never_replace_columns_of_the_table() -> None:
    """In a table that has flags and lengths of its own, under the names that ours would have."""
    names = ("age", "wave", "age_missing", "wave_length", "wave_length_", "y")
    settings = TrainerSettings.model_validate(
        {
            "label": "y",
            "task": "regression",
            "features": {
                **{name: {"type": "numeric", "scaling": "none"} for name in names},
                "wave": {"type": "sequence", "length": 2},
            },
        }
    )
    with tf.Graph().as_default():
        inputs = {
            name: tf.compat.v1.sparse_placeholder(tf.float32, [None, 2])
            if name in ("age", "wave")
            else tf.compat.v1.placeholder(tf.float32, [None, 1])
            for name in names
        }
        outputs = preprocessing_fn(inputs, settings.to_custom_config())
    assert outputs.keys() == inputs.keys() | {"age_missing_", "wave_length__"}


def test_categories_are_indexed_by_frequency_and_missing_is_one_of_them(trips: Transformed) -> None:
    names = ["Ace", "Best", "City", None, "", "never seen", "nor this"]
    indices = trips.transform([FULL | {"company": name} for name in names])["company"][:, 0]
    counts = {n: sum(r["company"] == n for r in trips.train) for n in ["Ace", "Best", "City", None]}
    by_frequency = sorted(counts, key=lambda name: -counts[name])
    expected = {name: index if index < 3 else 3 for index, name in enumerate(by_frequency)}
    assert [int(i) for i in indices[:4]] == [expected[name] for name in names[:4]]
    assert indices[4] == indices[3], "empty text is missing text"
    assert indices[5] == indices[6] == 3, "one out-of-vocabulary bucket, after the vocabulary"


@pytest.mark.slow
def test_indices_of_unknown_range_are_refused(tmp_path: Path) -> None:
    """As of an own preprocessing_fn that reshapes what a vocabulary made of a column."""
    spec = {
        "area": tf.io.FixedLenFeature([1], tf.int64),
        "price": tf.io.FixedLenFeature([1], tf.float32),
    }
    metadata = tft.DatasetMetadata.from_feature_spec(spec)
    metadata_io.write_metadata(
        metadata, str(tmp_path / tft.TFTransformOutput.TRANSFORMED_METADATA_DIR)
    )
    message = r"'area' is int64"
    with pytest.raises(TrainingError, match=message):
        Problem.from_transform(tft.TFTransformOutput(str(tmp_path)), Task.REGRESSION, "price")


def test_numbers_that_differ_are_different_categories() -> None:
    numbers = tf.constant([[1e-7], [2e-7], [0.5], [1e12], [1e30], [float("nan")], [-0.0]])
    texts = [text.decode() for text in dense_strings(numbers).numpy().ravel()]
    assert texts == ["1e-07", "2e-07", "0.5", "999999995904", "1e+30", "", "0"]


def test_integers_can_be_categories(trips: Transformed) -> None:
    areas = trips.transform([FULL | {"area": area} for area in (8, 32, 9, None)])["area"][:, 0]
    vocabulary_of_area = trips.tft_output.vocabulary_by_name("area")
    assert sorted(vocabulary_of_area) == [b"32", b"8", b"<missing>"]
    assert areas.tolist() == [
        vocabulary_of_area.index(b"8"),
        vocabulary_of_area.index(b"32"),
        3,
        vocabulary_of_area.index(b"<missing>"),
    ]


@pytest.mark.slow
def test_images_are_decoded_resized_and_scaled(shades: Transformed) -> None:
    rows = [
        {"image": make_image(shade, size), "shade": "mid"} for shade, size in [(0, 8), (51, 20)]
    ]
    images = shades.transform(rows)["image"]
    assert images.shape == (2, 12, 10, 1)
    assert images.dtype == np.float32
    np.testing.assert_allclose(images[0], 0)
    np.testing.assert_allclose(images[1], 0.2, rtol=1e-5)


def test_a_0_1_label_keeps_1_as_the_positive_class(trips: Transformed) -> None:
    tipped = [-1 if row["tipped"] is None else row["tipped"] for row in trips.train]
    assert sum(tipped) > len(tipped) / 2, "by frequency, 1 would come first"
    label = trips.transform(trips.train)["tipped"]
    assert label.dtype == np.int64
    assert label.shape == (450, 1)
    assert label[:, 0].tolist() == tipped
    assert trips.problem.classes == ("0", "1")


def test_labels_missing_or_not_in_the_train_split_are_no_class(trips: Transformed) -> None:
    label = trips.transform([FULL | {"tipped": value} for value in (1.0, None, 2.0, 0.5)])["tipped"]
    assert label[:, 0].tolist() == [1, -1, -1, -1]


@pytest.mark.slow
def test_text_labels_are_sorted_bytewise(shades: Transformed) -> None:
    assert shades.problem.classes == ("dark", "light", "mid")
    rows = [{"image": make_image(1), "shade": s} for s in ("mid", "dark", "purple")]
    assert shades.transform(rows)["shade"][:, 0].tolist() == [2, 0, -1]


@pytest.mark.parametrize(
    ("order", "counts", "expected"),
    [
        (ClassOrder("y", numeric=True), [(b"10", 9), (b"9", 2), (b"-1", 1)], [b"-1", b"9", b"10"]),
        (ClassOrder("y", numeric=False), [(b"10", 9), (b"9", 2), (b"B", 1)], [b"10", b"9", b"B"]),
        (ByFrequency(2), [(b"c", 1), (b"b", 5), (b"a", 1)], [b"b", b"a"]),
    ],
)  # fmt: skip
def test_orders(order: Order, counts: Counts, expected: list[bytes]) -> None:
    assert order(counts) == expected


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([(b"0", 1), (b"0.500000", 1)], "label 'y' holds 0.5"),
        ([], "label 'y' has no value"),
    ],
)
def test_labels_that_are_no_classes_are_refused(counts: Counts, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ClassOrder("y", numeric=True)(counts)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label": "tiped"}, "'tiped'.*'tipped'"),
        (
            {"features": {"company": {"type": "numeric"}}},
            "'company' holds text",
        ),
        (
            {"features": {"fare": {"type": "sequence", "length": 2, "separator": ";"}}},
            "remove features",
        ),
        ({"features": {"x": {"type": "cross", "of": ["fare", "compny"]}}}, "mean 'company'"),
    ],
)
def test_settings_that_do_not_fit_the_columns_are_refused(changes: dict, message: str) -> None:
    settings = TrainerSettings.model_validate({"label": "tipped", "task": "binary", **changes})
    with tf.Graph().as_default():
        inputs = {
            "fare": tf.constant([[1.0]]),
            "company": tf.constant([["Ace"]]),
            "tipped": tf.constant([[1]], tf.int64),
        }
        with pytest.raises(DataError, match=message):
            preprocessing_fn(inputs, settings.to_custom_config())


def test_a_column_with_a_million_values_is_counted_within_bounds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module in (vocabularies, vocabulary_orders):
        monkeypatch.setattr(module, "MOST_COUNTED", 100)
    add = SumCounts(1)
    sums = add.create_accumulator()
    for batch in range(20):
        values = {f"{batch}-{n}".encode(): 1 for n in range(50)}
        sums = add.add_input(sums, [{**values, b"often": 2}])
        assert len(sums[0]) <= 200 + 51
    assert sums[0][b"often"] == 40
    ids = ByFrequency(3, column="id")(list(sums[0].items()))
    assert ids[0] == b"often"
    assert len(ids) == 3
    assert "'id' has at least 100" in caplog.text
    assert "hash_buckets" in caplog.text


@pytest.mark.slow
def test_vocabularies_of_very_many_columns_share_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outputs and the problem are those of a table for each column."""
    rows = [
        {"a": f"{n % 3}:{n % 2}", "b": "1:0" if n % 5 else None, "c": n % 7, "y": n % 2}
        for n in range(60)
    ]
    unseen = [{"a": "é", "b": "0:1", "c": 99, "y": 1}, {"a": "", "b": "1:0", "c": 0, "y": 0}]
    kind = {"type": "categorical"}
    features = {"a": kind, "b": kind, "c": {**kind, "vocabulary_size": 5}}
    settings = TrainerSettings.model_validate(
        {"label": "y", "task": "binary", "features": features}
    )
    apart = run_transform(tmp_path / "apart", rows, rows[:8], settings)
    monkeypatch.setattr(categorical, "MAX_TABLES", 2)
    together = run_transform(tmp_path / "together", rows, rows[:8], settings)
    # One of them is for the classes.
    assert count_tables(together) == 2 < 4 <= count_tables(apart)
    assert together.problem == apart.problem
    for some in (rows, unseen):
        expected, found = apart.transform(some), together.transform(some)
        assert set(found) == set(expected) == {"a", "b", "c", "y"}
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values)
    for name in features:
        vocabulary = together.tft_output.vocabulary_by_name(name)
        assert vocabulary == apart.tft_output.vocabulary_by_name(name)


def count_tables(transformed: Transformed) -> int:
    """The tables in which the graph of Transform looks values up."""
    path = transformed.root / "graph" / "transform_fn" / "saved_model.pb"
    (graph,) = saved_model_pb2.SavedModel.FromString(path.read_bytes()).meta_graphs
    functions = graph.graph_def.library.function
    nodes = [node for function in functions for node in function.node_def]
    return sum(node.op == "HashTableV2" for node in nodes)
