"""Values as messages show them."""

from __future__ import annotations

import pytest

from components.example_gen.columns.encoded import shown


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("x" * 100, "x" * 80),
        (b"x" * 100, "x" * 80),
        (("x" + "é" * 99).encode(), "x" + "é" * 79),
        (("x" + "\U0001f600" * 99).encode(), "x" + "\U0001f600" * 79),
        (b"a\xff", "a\\xff"),
        ("", ""),
    ],
)
def test_a_long_value_is_cut_between_characters(value: bytes | str, expected: str) -> None:
    assert shown(value) == expected
