"""What is shown of other libraries' errors, and numbers in sentences."""

from __future__ import annotations

import pytest
import yaml

from trainer_module.errors import as_key, counted, shorten


def test_long_error_is_shortened_to_whole_words():
    assert shorten(ValueError("no layer\n\n  of that name")) == "no layer of that name"
    words = "to fix this issue: (1) Implement `get_config` and `from_config`"
    assert shorten(words, 40) == "to fix this issue: (1) Implement..."
    assert shorten(words, len(words)) == words
    assert all(len(shorten(words, most)) <= most for most in range(4, 70))
    assert shorten("x" * 50, 20) == "x" * 17 + "..."


def test_a_number_has_its_noun_in_the_right_form() -> None:
    found = [counted(number, noun) for number in (0, 1, 1000) for noun in ("row", "class", "epoch")]
    assert found == [
        *("0 rows", "0 classes", "0 epochs"),
        *("1 row", "1 class", "1 epoch"),
        *("1,000 rows", "1,000 classes", "1,000 epochs"),
    ]


@pytest.mark.parametrize("name", ["no", "null", "true", "12", "a, b", "x: y", "{z", "größe", "a b"])
def test_a_name_as_a_key_is_read_back_as_it_was(name: str) -> None:
    line = f"features: {{{as_key(name)}: {{type: ignore}}}}"
    assert yaml.safe_load(line) == {"features": {name: {"type": "ignore"}}}
    assert as_key("fare") == "fare"
