"""The type of a column by its values, and the reason that is reported."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from components.column_types.choice import Choice
from components.column_types.decision import choose_types
from components.column_types.facts import collect_facts, collect_list_facts
from components.example_gen.checks.dates import find_dates, tally_dates
from components.example_gen.columns.encoded import Cell, list_columns, single_values
from components.example_gen.formats import ExampleGenSettings

Values = Sequence[str | float | None]
ROWS = 400


def arrow(values: Values) -> pa.Array:
    texts = [value.encode() if isinstance(value, str) else value for value in values]
    is_text = any(isinstance(value, bytes) for value in texts)
    return pa.array(texts, pa.binary() if is_text else pa.float32())


def choose(total_rows: int = 0, **columns: Values) -> dict[str, Choice]:
    """The choices for columns beside one that is certainly to be learnt from."""
    rows = len(next(iter(columns.values())))
    arrays = {name: arrow(values) for name, values in columns.items()}
    arrays["price"] = pa.array(np.random.default_rng(0).random(rows), pa.float32())
    rows = pa.RecordBatch.from_pydict(
        {name: single_values(values) for name, values in arrays.items()}
    )
    settings = ExampleGenSettings(format="parquet", label="label", task="binary")
    dates = find_dates(tally_dates(rows, Cell("a.parquet", 1), settings))
    return choose_types(collect_facts(arrays, dates, total_rows))


def pick(values: Values, rows: int = ROWS) -> list[str | float | None]:
    chosen = np.random.default_rng(1).integers(len(values), size=rows)
    return [values[i] for i in chosen]


def shuffled(values: Sequence[float]) -> list[float]:
    return [float(values[i]) for i in np.random.default_rng(1).permutation(len(values))]


def shuffled_texts(values: Sequence[int]) -> list[str]:
    return [f"{value:.0f}" for value in shuffled(values)]


def days(layout: str) -> list[str]:
    return [layout.format(d=i % 28 + 1, m=i % 12 + 1, y=2000 + i % 20) for i in range(ROWS)]


CHOICES = {
    "gift": (pick(["yes", None]), "categorical", "no value"),
    "shades": (pick(["red", "blue"]), "categorical", "text of 2 values"),
    "bought": (days("{d:02}/{m:02}/{y}"), "date", "dates such as '01/01/2000'"),
    "month": (pick([f"{y}-{y % 12 + 1:02}" for y in range(2000, 2012)]), "date", "dates such"),
    "member": (pick(["Yes", "no", None]), "boolean", "mean yes and no"),
    "empty": ([None] * ROWS, "ignore", "no value in any of 400 rows"),
    "same": ([7.0] * ROWS, "ignore", "7 in each of 400 rows"),
    "same_or_none": ([7.0, None] * 200, "numeric", "7 in 200 of 400 rows, and no value"),
    "year": ([2026.0] * ROWS, "numeric", "numbers from "),
    "reviews": (
        [f"the trip number {i} was good" for i in range(ROWS)],
        "text",
        "first 8 words",
    ),
    "impressions": (
        [f"\u3053\u308c\u306f{i}\u756a\u76ee\u306e\u3068\u3066\u3082" for i in range(ROWS)],
        "text",
        "characters",
    ),
    "booking": (
        [f"T{i:04}" for i in range(ROWS)],
        "ignore",
        "identifier",
    ),
    "customer_id": (pick([f"C{i}" for i in range(90)]), "categorical", "text of"),
    "PassengerId": (
        shuffled(range(5, 5 + 3 * ROWS, 3)),
        "ignore",
        "whole number in each",
    ),
    "week_no": (list(map(float, range(ROWS))), "numeric", "numbers from "),
    "n": (list(map(float, range(ROWS))), "ignore", "from 0 to 399"),
    "sample": (shuffled(range(1, ROWS + 1)), "ignore", "from 1 to 400"),
    "rooms": (pick([1.0, 2.0, 3.0]), "numeric", "numbers from "),
    "store_id": (pick([3.0, 4.0, 9.0]), "categorical", "3 different identifiers"),
    "account_id": (
        [2.0**30 + 64 * (i // 2) for i in range(ROWS)],
        "ignore",
        "float32",
    ),
    "amount": (
        pick([f"${n / 7:,.2f}" for n in range(0, 90000, 2000)]),
        "numeric",
        "such as '$",
    ),
    "share": ([f"{i / 7:.3f}%" for i in range(ROWS)], "numeric", "such as '0.000%'"),
    "fee": (
        [*["Free"] * 8, *(f"${i}.99" for i in range(ROWS))],
        "numeric",
        "such as '$0.99'; values such as 'Free' count as missing",
    ),
    "paid in": (pick(["$5", "$7.50", "€9"]), "categorical", "written as text"),
    "order id": (
        shuffled_texts(range(10**9, 10**9 + 7 * ROWS, 7)),
        "ignore",
        "nearly all values",
    ),
    "code": (pick(["007", "042", "815"]), "categorical", "codes of digits, such as '"),
    "logged": (
        pick(["31.12.2020", "2020-12-30", "2020-12-29"]),
        "categorical",
        "%Y-%m-%d, the first is '31.12.2020'",
    ),
    "due": (
        [*days("{y}-{m:02}-{d:02}"), "soon"],
        "date",
        "the first is 'soon' in row 401 of a.parquet",
    ),
}


@pytest.mark.parametrize("name", CHOICES)
def test_type_of_a_column_and_its_reason(name: str) -> None:
    values, kind, reason = CHOICES[name]
    choice = choose(**{name: values})[name]
    assert (choice.type, reason in choice.reason) == (kind, True), choice


def test_a_date_has_the_format_of_all_its_values() -> None:
    choice = choose(bought=days("{d:02}/{m:02}/{y}"))["bought"]
    assert choice.settings == {"type": "date", "format": "%d/%m/%Y"}


@pytest.mark.parametrize(("last", "kind"), [(20241231, "date"), (20241232, "numeric")])
def test_whole_numbers_that_are_days_are_dates(last: int, kind: str) -> None:
    days = pa.array([20240101, None, last] * 50, pa.int64())
    (facts,) = collect_facts({"shipped": days}, {})
    assert choose_types([facts])["shipped"].type == kind


def test_notation_of_numbers_is_chosen() -> None:
    prices = [f"{i},50 €" for i in range(ROWS)]
    settings = {"type": "numeric", "written": "comma", "unit": "€"}
    assert choose(price_eur=prices)["price_eur"].settings == settings


def test_text_of_very_many_values_is_hashed() -> None:
    texts = [f"street {i % 8000}" for i in range(16_000)]
    choice = choose(street=texts)["street"]
    assert choice.settings == {"type": "categorical", "hash_buckets": 2000}
    assert "8,000" in choice.reason


@pytest.mark.parametrize("rows", [20, 90])
def test_columns_of_few_rows_are_not_ignored(rows: int) -> None:
    texts = [f"town{'abcdefghij'[i % 10] * (i // 10 + 1)}" for i in range(rows)]
    sizes = shuffled(range(30, 30 + 7 * rows, 7))
    found = choose(town=texts, flag=[0.0] * rows, size=sizes, left=["x"] * rows)
    assert {name: choice.type for name, choice in found.items()} == {
        "town": "categorical",
        "flag": "numeric",
        "size": "numeric",
        "left": "categorical",
        "price": "numeric",
    }


def test_row_numbers_in_a_sample_are_ignored() -> None:
    part = [float(i) for i in shuffled(range(1, 1000))[:ROWS]]
    assert choose(1000, n=[0.0, *part])["n"].is_ignored
    assert choose(1000, n=[i + 2 for i in part])["n"].is_ignored
    assert not choose(n=[0.0, *part])["n"].is_ignored


def test_last_column_is_never_ignored() -> None:
    columns = collect_facts({"x": arrow(list(map(float, range(ROWS)))), "none": pa.nulls(ROWS)}, {})
    choices = choose_types(columns)
    assert choices["x"].type == "numeric"
    assert "no other column is left" in choices["x"].reason
    assert choices["none"].is_ignored


LISTS = {
    "text": ([[b"a", b"b"], [b"b"]], {"type": "categorical", "many": True, "max_values": 2}),
    "integers": ([[1, 2, 3], [], [7]], {"type": "categorical", "many": True, "max_values": 3}),
    "floats": ([[0.5], None, [2.0] * 80], {"type": "sequence", "length": 50}),
    "many": (
        [[b"%d" % i, b"%d" % -i] for i in range(1, 4000)],
        {"type": "categorical", "many": True, "max_values": 2, "hash_buckets": 2000},
    ),
}


@pytest.mark.parametrize("name", LISTS)
def test_type_of_lists(name: str) -> None:
    values, settings = LISTS[name]
    rows = pa.RecordBatch.from_pydict({"x": pa.array(values), "one": pa.array([[1]] * len(values))})
    (choice,) = choose_types(
        collect_list_facts(list_columns([rows.slice(0, 1), rows.slice(1)]))
    ).values()
    assert choice.settings == settings
    assert choice.reason.startswith("lists of up to ")


def test_integers_0_and_1_are_boolean() -> None:
    def chosen(values: Sequence[int], column_type: pa.DataType) -> str:
        (facts,) = collect_facts({"active": pa.array(list(values) * 100, column_type)}, {})
        return choose_types([facts])["active"].type

    assert chosen([0, 1], pa.int64()) == "boolean"
    assert chosen([0, 1, 2], pa.int64()) == "numeric"
    assert chosen([0, 1], pa.float32()) == "numeric"
