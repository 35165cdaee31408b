"""Numbers that people write as text are found, and read in a graph."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from trainer_module.features.number_format import NumberFormat, find_number_format
from trainer_module.features.raw_columns import parse_numbers

NAN = math.nan
POINT, COMMA = "point", "comma"


@pytest.mark.parametrize(
    ("values", "style", "unit", "expected"),
    [
        (["$1,234.50", "-$714.32", "($3.00)", "$ 12"], POINT, "$", [1234.5, -714.32, -3, 12]),
        (["Rs. 4511", "rs. 12,34,567"], POINT, "Rs.", [4511, 1234567]),
        (["1.234,50 €", "0,99 €", "-12 €"], COMMA, "€", [1234.5, 0.99, -12]),
        (["1\u202f234,5", "12,75"], COMMA, "", [1234.5, 12.75]),
        (["CHF 1'234.50", "CHF 12.05"], POINT, "CHF", [1234.5, 12.05]),
        (["12 kg", "3.5kg", "1,000 KG"], POINT, "kg", [12, 3.5, 1000]),
        (["5 m", "12m"], POINT, "m", [5, 12]),
        (["36 months", "60 months"], POINT, "months", [36, 60]),
        (["1.2k", "950", "3.4M"], POINT, "", [1200, 950, 3.4e6]),
        (["1.5", "2e3", "\u22124", ".5", "100-"], POINT, "", [1.5, 2000, -4, 0.5, -100]),
        (["US$5", "US$1,000"], POINT, "US$", [5, 1000]),
    ],
)
def test_numbers_are_found_and_read(
    values: list[str], style: str, unit: str, expected: list[float]
) -> None:
    number_format = find_number_format(values)
    assert number_format is not None
    assert (number_format.style, number_format.unit) == (style, unit)
    read = parse_numbers(tf.constant([values]), number_format)
    assert read.dtype == tf.float32
    np.testing.assert_allclose(read.numpy()[0], expected, rtol=1e-6)


def test_ambiguous_texts_are_no_numbers() -> None:
    for values in [
        *(["1.234", "12.345"], ["$5", "€7"], ["5 kg", "300 g"], ["5%", "0.05"], ["A12", "B13"]),
        *(["192.168.0.1", "10.0.0.1"], ["<5", "10+"], ["12/05", "13/06"], ["12:30", "25:61"], []),
    ]:
        assert find_number_format(values) is None, values


def test_texts_in_another_notation_are_missing() -> None:
    texts = tf.constant(["", "soon", "$", "€5", "1,23", "1;2", '"', "$5 kg", "$1e99", "9" * 40])
    np.testing.assert_array_equal(parse_numbers(texts, NumberFormat("point", "$")), [NAN] * 10)
    times = tf.constant(["", "7", "12:60", "1:00;"])
    np.testing.assert_array_equal(parse_numbers(times, NumberFormat("clock")), [NAN] * 4)


def test_a_few_texts_do_not_hide_a_number_format() -> None:
    assert find_number_format([*(f"${i}.50" for i in range(20)), "call us"]) == NumberFormat(
        "point", "$"
    )


NUMBER_FORMATS = [NumberFormat("point"), NumberFormat("comma"), NumberFormat("clock")] + [
    NumberFormat(style, unit) for style in (POINT, COMMA) for unit in ("$", "mi.", "zł")
]
_PIECES = [
    *"0123456789",
    *"  \t\u00a0\u202f.,':;()+-\u2212eEkmbKMBpa$€%x\"\\",
    *("000", "12:30", "1e9", "kg", "KG", "mi.", "Zł", "ZŁ", "a.m.", "PM", "1,234.5", "1.234,5"),
    *("none", "\ufffd", "é"),
]


def test_python_reads_and_writes_numbers_as_the_graph_does() -> None:
    random = np.random.default_rng(5)
    texts = ["".join(random.choice(_PIECES, random.integers(1, 7))) for _ in range(400)]
    for number_format in NUMBER_FORMATS:
        beside = [f"{number_format.unit} {text}" for text in texts[:100]]
        numbers = [-0.5, 0, 8500, 1e-60, 1e22, 1 / 3, -1234.0625, 2**53, 3e38, 9999.99]
        written = [number_format.write(float(number)) for number in numbers]
        values = [*texts, *beside, *written]
        here = np.array([number_format.read(text) for text in values], np.float32)
        np.testing.assert_array_equal(parse_numbers(tf.constant(values), number_format), here)
        assert number_format.style == "clock" or np.isfinite(here[: -len(written)]).any()
        readable = [
            number for number in numbers if number_format.style != "clock" or 0 <= number < 9999
        ]
        found = np.array([number_format.read(number_format.write(float(n))) for n in readable])
        np.testing.assert_allclose(found, readable, rtol=1e-6, atol=1e-9)


def test_text_of_many_spaces_is_read_without_backtracking() -> None:
    # With backtracking this would take hours.
    assert math.isnan(NumberFormat(POINT, "$").read("(" + " " * 100_000 + "x"))
    assert NumberFormat(POINT, "$").read("(" + " " * 100_000 + "7)") == -7
