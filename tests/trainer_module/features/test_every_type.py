"""What each feature type of the registry has to pass, all in one run of Transform.

Each column of `COLUMNS` is of a type, declared by its entry; a new type gets an entry.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import FeatureUnion

from tests.support.trainer_data import Row, Transformed, make_image, to_example, transformed_once
from trainer_module.export.saving import build_signatures
from trainer_module.features import FEATURES
from trainer_module.settings import ModelSettings, TrainerSettings
from trainer_module.settings.model import load_builder

Random = random.Random


@dataclass(frozen=True)
class Column:
    """A column of a type, and what a request may bring that training never saw."""

    settings: dict[str, Any]
    make: Callable[[Random], Any]
    unseen: list[Any] = field(default_factory=list)
    may_miss: bool = True
    """Whether it has gaps in the train split, and in requests."""


def _time(generator: Random) -> datetime:
    return datetime(2020, 1, 1) + timedelta(generator.uniform(0, 1500))


def _sentence(generator: Random) -> str:
    return " ".join(generator.choices(["good", "bad", "It's", "caf\u00e9", "!"], k=4))


COLUMNS = {
    "boolean": Column({"type": "boolean"}, lambda r: r.choice(["yes", "No", " t "]), ["maybe", ""]),
    "date": Column({"type": "date"}, lambda r: f"{_time(r):%d/%m/%Y}", ["soon", "2024-01-05", ""]),
    "time": Column(
        {"type": "date", "format": "%Y-%m-%d %H:%M", "reference": "date"},
        lambda r: _time(r).isoformat(),
        ["soon", "0001-01-01"],
    ),
    "epoch": Column(
        {"type": "date", "unit": "ms"}, lambda r: int(_time(r).timestamp() * 1000), [-1], False
    ),
    "categorical": Column({"type": "categorical"}, lambda r: r.choice("abc"), ["z", "", "ü"]),
    "hashed": Column(
        {"type": "categorical", "hash_buckets": 20}, lambda r: str(r.randrange(99)), ["new"]
    ),
    "tags": Column(
        {"type": "categorical", "many": True, "max_values": 3},
        lambda r: r.choices("pqrs", k=r.randint(1, 5)),
        [["new", "p"], ["z"] * 9],
    ),
    "words": Column(
        {"type": "categorical", "many": True, "separator": ";", "encoding": "one_hot"},
        lambda r: "; ".join(r.choices("pqrs", k=r.randint(1, 5))),
        ["new;;p", ";", "x;" * 30],
    ),
    "wave": Column(
        {"type": "sequence", "length": 4},
        lambda r: [r.gauss(9, 3) for _ in range(r.randint(1, 6))],
        [[1e30], [0.0] * 99],
    ),
    "steps": Column(
        {"type": "sequence", "length": 3, "separator": ","},
        lambda r: ",".join(str(r.randrange(9)) for _ in range(r.randint(1, 4))),
        ["a,2", ",,", "1e400"],
    ),
    "pair": Column({"type": "cross", "of": ["ignore", "area"], "hash_buckets": 7}, lambda r: None),
    "engine": Column(
        {"type": "categorical", "words": 3},
        lambda r: f"{r.choice(['2.0L V6', '2.0L', '2.0L v6, Turbo'])} {r.randrange(99)}",
        ["", "<missing>", "1.6L"],
    ),
    "area": Column({"type": "categorical"}, lambda r: r.randrange(3), [9]),
    "money": Column(
        {"type": "own_types.Money", "rate": 2.0}, lambda r: r.choice(["$1", "$20"]), ["x"]
    ),
    "numeric": Column({"type": "numeric"}, lambda r: r.gauss(5, 2), [1e30, -1e30]),
    **{
        scaling: Column(
            {"type": "numeric", "scaling": scaling, "fill": fill},
            lambda r: r.gauss(5, 2),
            [1e30, -1e30],
        )
        for scaling, fill in [
            ("min_max", "mean"),
            ("log", "zero"),
            ("robust", "median"),
            ("quantiles", 3.5),
            ("none", "median"),
        ]
    },
    "amount": Column(
        {"type": "numeric", "written": "point", "unit": "$"},
        lambda r: f"${r.gauss(5e3, 2e3):,.2f}",
        ["5 €", "", "$1e60"],
    ),
    "clipped": Column({"type": "numeric", "clip": [4, 6]}, lambda r: r.gauss(5, 2), [1e30]),
    "ranges": Column({"type": "numeric", "buckets": 4}, lambda r: r.gauss(5, 2), [1e30]),
    "constant": Column({"type": "numeric", "scaling": "robust"}, lambda r: 7.0, [8.0]),
    "image": Column(
        {"type": "image", "height": 2, "width": 2},
        lambda r: make_image(r.randrange(256)),
        may_miss=False,
    ),
    "text": Column(
        {"type": "text", "max_tokens": 5, "words": 9}, _sentence, ["", "Never seen", "x " * 99]
    ),
    "order": Column(
        {"type": "text", "max_tokens": 5, "encoding": "sequence"}, _sentence, ["", "Never seen"]
    ),
    "letters": Column(
        {"type": "text", "tokens": "characters", "ngrams": 3, "hash_buckets": 50, "lower": False},
        _sentence,
        ["", "\U0001f600", b"\xff\xfe no UTF-8", "word " * 20_000],
    ),
    "ignore": Column({"type": "ignore"}, lambda r: r.choice("xy"), ["z"]),
}


LEVELS = ["low", "mid", "high"]
ONE_OF_EACH_TYPE = [
    *("boolean", "date", "time", "tags", "wave", "pair", "area", "money", "amount", "image"),
    *("text", "ignore"),
]


def make_row(generator: Random, gaps: float = 0.2) -> Row:
    """A row with a value missing now and then."""
    row = {
        name: None
        if column.settings["type"] == "cross" or (column.may_miss and generator.random() < gaps)
        else column.make(generator)
        for name, column in COLUMNS.items()
    }
    return {**row, "y": generator.choice(LEVELS)}


def transform_columns(factory: pytest.TempPathFactory, name: str, names: list[str]) -> Transformed:
    """Some of the columns through Transform."""
    generator = Random(7)
    rows = [make_row(generator) for _ in range(200)]
    rows = [{name: row[name] for name in (*names, "y")} for row in rows]
    features = {name: COLUMNS[name].settings for name in names}
    settings = TrainerSettings.model_validate(
        {"label": "y", "task": {"kind": "ordinal", "order": LEVELS}, "features": features}
    )
    return transformed_once(factory, name, rows[:150], rows[150:], settings)


@pytest.fixture(scope="session")
def few(tmp_path_factory: pytest.TempPathFactory) -> Transformed:
    return transform_columns(tmp_path_factory, "one_of_each_type", ONE_OF_EACH_TYPE)


@pytest.fixture(scope="session")
def others(tmp_path_factory: pytest.TempPathFactory) -> Transformed:
    names = [name for name in COLUMNS if name not in ONE_OF_EACH_TYPE]
    return transform_columns(tmp_path_factory, "other_columns", names)


@pytest.fixture(params=["few", pytest.param("others", marks=pytest.mark.slow)])
def some_columns(request: pytest.FixtureRequest) -> Transformed:
    data: Transformed = request.getfixturevalue(request.param)
    return data


def make_rows(count: int) -> list[Row]:
    generator = Random(11)
    return [make_row(generator) for _ in range(count)]


def test_every_type_has_a_column() -> None:
    types = {COLUMNS[name].settings["type"] for name in ONE_OF_EACH_TYPE}
    assert types == {*FEATURES, "own_types.Money"}


@pytest.mark.proof
def test_outputs_are_dense_finite_and_of_their_type(some_columns: Transformed) -> None:
    table = some_columns
    outputs = table.transform(table.train)
    features = {feature.name: feature for feature in table.problem.features}
    assert features.keys() == outputs.keys() - {"y"}
    for name, feature in features.items():
        values = outputs[name]
        assert values.shape == (150, *feature.shape), name
        assert values.dtype == feature.dtype, name
        assert np.isfinite(values).all(), name
        if feature.vocabulary_size:
            assert 0 <= values.min() <= values.max() < feature.vocabulary_size, name
    columns = table.settings.features
    makers = {name for name, column in columns.items() if column.type != "ignore"}
    assert {next(m for m in columns if n == m or n.startswith(f"{m}_")) for n in features} == makers


@pytest.mark.proof
def test_classes_are_numbered_in_their_order(few: Transformed) -> None:
    (row,) = make_rows(1)
    labels = few.transform([{**row, "y": level} for level in [*LEVELS, "top"]])["y"]
    assert labels[:, 0].tolist() == [0, 1, 2, -1]


@pytest.mark.proof
def test_numbers_have_the_size_of_z_scores(some_columns: Transformed) -> None:
    outputs = some_columns.transform(some_columns.train)
    for feature in some_columns.problem.of_kind("numeric"):
        assert np.abs(outputs[feature.name]).max() < 12, feature.name


@pytest.mark.proof
def test_rows_and_columns_may_come_in_any_order(some_columns: Transformed) -> None:
    rows = make_rows(20)
    together = some_columns.transform(rows)
    for place in (0, 13):
        alone = some_columns.transform([dict(reversed(rows[place].items()))])
        for name, values in alone.items():
            np.testing.assert_allclose(values[0], together[name][place], atol=1e-6, err_msg=name)


@pytest.mark.proof
def test_a_row_may_miss_everything(some_columns: Transformed) -> None:
    (row,) = make_rows(1)
    empty = {name: row[name] if name in ("image", "y") else None for name in row}
    for name, values in some_columns.transform([empty]).items():
        assert np.isfinite(values).all(), name
        if name.endswith("_missing"):
            assert values.item() == 1, name


@pytest.mark.proof
def test_values_never_seen_in_training_give_valid_outputs(some_columns: Transformed) -> None:
    (row,) = make_rows(1)
    sizes = {feature.name: feature.vocabulary_size for feature in some_columns.problem.features}
    names = some_columns.settings.features
    rows = [{**row, name: value} for name in names for value in COLUMNS[name].unseen]
    for output, values in some_columns.transform(rows).items():
        assert np.isfinite(values).all(), output
        if sizes.get(output):
            assert 0 <= values.min() <= values.max() < sizes[output], output


@pytest.mark.proof
def test_serving_graph_gives_the_examples_that_transform_wrote(some_columns: Transformed) -> None:
    served = some_columns.transform(some_columns.evaluation)
    spec = {
        name: tf.io.FixedLenFeature(value.shape[1:], value.dtype) for name, value in served.items()
    }
    files = tf.io.gfile.glob(some_columns.files("eval"))
    records = tf.data.TFRecordDataset(sorted(files), "GZIP")
    written = tf.io.parse_example(list(records.as_numpy_iterator()), spec)
    for name, values in served.items():
        np.testing.assert_allclose(values, written[name], atol=1e-6, err_msg=name)


@pytest.mark.proof
def test_signatures_take_raw_columns_of_every_type(few: Transformed) -> None:
    table = few
    settings = table.settings
    model = load_builder("mlp")(table.problem, ModelSettings(kind="mlp", hidden_units=[4]))
    layer = table.tft_output.transform_features_layer()
    signatures = build_signatures(model, layer, table.tft_output, table.problem, settings)
    (row,) = make_rows(1)
    rows = [{**row, "tags": tags, "ignore": "x"} for tags in (["p", "q"], ["q", "p"], ["s"], None)]
    scores = signatures["serving_default"](tf.constant([to_example(r) for r in rows]))["scores"]
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-6)
    assert np.isfinite(scores).all()

    takes = signatures["serving_raw"].input_signature[0]
    assert takes["tags"].shape.rank == takes["wave"].shape.rank == 2
    spec = table.tft_output.raw_feature_spec()
    raw = {name: _as_request([r[name] for r in rows], takes[name], spec[name]) for name in takes}
    np.testing.assert_allclose(signatures["serving_raw"](raw)["scores"], scores, atol=1e-6)


def _as_request(values: list[Any], takes: tf.TensorSpec, column: Any) -> tf.Tensor:
    """Values of a column as the signature of a tensor per column takes them."""
    missing: Any = "" if takes.dtype == tf.string else float("nan")
    if takes.dtype == tf.int64:
        missing = column.default_value
    lists = [v if isinstance(v, list) else [missing if v is None else v] for v in values]
    widest = max(map(len, lists))
    full = [v + [missing] * (widest - len(v)) for v in lists]
    tensor = tf.constant(full, takes.dtype)
    return tensor[:, 0] if takes.shape.rank == 1 else tensor


@pytest.mark.slow
def test_scales(others: Transformed) -> None:
    table, apply = others, others.transform
    outputs = apply(table.train)

    def raw(name: str) -> np.ndarray:
        return np.array([np.nan if r[name] is None else r[name] for r in table.train], np.float32)

    def scaled(name: str) -> np.ndarray:
        return outputs[name][~np.isnan(raw(name)), 0]

    assert (scaled("min_max").min(), scaled("min_max").max()) == (0, 1)
    assert np.median(scaled("robust")) == pytest.approx(0, abs=0.05)
    assert np.subtract(*np.quantile(scaled("robust"), [0.75, 0.25])) == pytest.approx(1, abs=0.1)
    assert scaled("quantiles").std() == pytest.approx(1, abs=0.05)
    ranks = np.argsort(np.argsort(raw("quantiles")[~np.isnan(raw("quantiles"))]))
    assert np.corrcoef(ranks, scaled("quantiles"))[0, 1] > 0.999
    np.testing.assert_array_equal(scaled("none"), raw("none")[~np.isnan(raw("none"))])
    filled = outputs["none"][np.isnan(raw("none")), 0]
    np.testing.assert_allclose(filled, np.nanmedian(raw("none")), atol=0.1)
    assert len(np.unique(scaled("clipped"))) < len(np.unique(raw("clipped")))
    counts = np.bincount(outputs["ranges"][:, 0])
    assert counts[4] == np.isnan(raw("ranges")).sum()
    assert max(counts[:4]) - min(counts[:4]) <= 3
    assert np.isfinite(outputs["constant"]).all()


@pytest.mark.proof
def test_the_parts_of_dates_are_those_of_the_calendar(few: Transformed) -> None:
    apply = few.transform
    row = make_rows(1)[0]
    dates = ["31/12/2020", "01/01/2021"]
    last, first = apply([{**row, "date": date} for date in dates])["date"]
    assert (last[:2] - first[:2])[0] > 0 > (last[:2] - first[:2])[1], "older, of an earlier year"
    turns = np.array([11 / 12, 30 / 31, 0]) * 2 * np.pi
    cyclic = np.append(last[2:6], last[13:])
    np.testing.assert_allclose(cyclic[::2], np.sin(turns), atol=1e-5)
    np.testing.assert_allclose(cyclic[1::2], np.cos(turns), atol=1e-5)
    np.testing.assert_array_equal(last[6:13], np.eye(7)[3], "a Thursday")
    ages = apply(
        [{**row, "date": "31/12/2020", "time": f"2020-12-{day}T12:00:00"} for day in (1, 30, 31)]
    )["time"][:, 0]
    assert ages[0] > ages[1] > ages[2]
    assert ages[0] - ages[1] == pytest.approx(29 * (ages[1] - ages[2]), rel=1e-3)


@pytest.mark.proof
def test_amounts_of_money_are_read_as_numbers(few: Transformed) -> None:
    apply = few.transform
    row = make_rows(1)[0]
    texts = ["$3,000", "$4000.00", "($2,000)", "5 €", None]
    outputs = apply([{**row, "amount": text} for text in texts])
    low, high, negative = outputs["amount"][:3, 0]
    assert low - negative == pytest.approx(5 * (high - low), rel=1e-4)
    assert outputs["amount_missing"][:, 0].tolist() == [0, 0, 0, 1, 1]


@pytest.mark.proof
def test_words_for_yes_and_no(few: Transformed) -> None:
    apply = few.transform
    row = make_rows(1)[0]
    words = ["TRUE", "yes", "off", "N", "maybe", None]
    outputs = apply([{**row, "boolean": word} for word in words])
    assert outputs["boolean"][:, 0].tolist() == [1, 1, -1, -1, 0, 0]
    assert outputs["boolean_missing"][:, 0].tolist() == [0, 0, 0, 0, 1, 1]


@pytest.mark.slow
def test_frequent_words_have_their_own_columns(others: Transformed) -> None:
    apply = others.transform
    row = make_rows(1)[0]
    texts = ["2.0l (V6)", "V6: Turbo.", "3.0L v6-Turbo", None]
    outputs = apply([{**row, "engine": text} for text in texts])
    # 2.0l is in every train row, v6 in two thirds, turbo in a third.
    assert outputs["engine_words"].tolist() == [[1, 1, 0], [0, 1, 1], [0, 0, 0], [0, 0, 0]]


@pytest.mark.proof
def test_weights_of_terms_equal_those_of_scikit_learn(few: Transformed) -> None:
    table, apply = few, few.transform
    words = TfidfVectorizer(
        ngram_range=(1, 2), tokenizer=str.split, token_pattern=None, sublinear_tf=True
    )
    within = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 4), sublinear_tf=True)
    texts = [" ".join((row["text"] or "").replace("!", " ! ").split()[:5]) for row in table.train]
    known = [text for text in texts if text]
    assert max(len(within.build_analyzer()(text)) for text in known) <= 8 * 5, "none is dropped"
    union = FeatureUnion([("", words), ("\x1e", within)]).fit(known)
    terms = [term.decode() for term in table.tft_output.vocabulary_by_name("text")]
    named = [*words.get_feature_names_out(), *("\x1e" + n for n in within.get_feature_names_out())]
    assert set(terms) == {"<padding>", *named}
    expected = union.transform(texts).toarray()[:, [named.index(term) for term in terms[1:]]]
    found = np.zeros((len(texts), len(terms)))
    for row, pairs in enumerate(apply(table.train)["text"]):
        np.add.at(found[row], pairs[:, 0].astype(int), pairs[:, 1])
    np.testing.assert_allclose(found[:, 1:], expected, atol=1e-6)


@pytest.mark.slow
def test_tokens_keep_their_order_and_end_in_padding(others: Transformed) -> None:
    table, apply = others, others.transform
    row = make_rows(1)[0]
    terms = table.tft_output.vocabulary_by_name("order")
    texts = ["good  CAF\u00c9, cafe\u0301!", "", None, "never", "good bad " * 9]
    found = apply([{**row, "order": text} for text in texts])["order"]
    good, cafe, bad = (terms.index(word.encode()) for word in ("good", "caf\u00e9", "bad"))
    assert found[0].tolist() == [good, cafe, cafe, terms.index(b"!"), 0]
    assert found[1].tolist() == found[2].tolist() == [0] * 5
    assert found[3].tolist() == [len(terms), 0, 0, 0, 0], "the bucket of what is not known"
    assert found[4].tolist() == [good, bad, good, bad, good]
