"""What is shown of other libraries' errors."""

from __future__ import annotations

from trainer_module.errors import shorten


def test_an_error_is_shown_whole_or_as_many_words_as_fit():
    assert shorten(ValueError("no layer\n\n  of that name")) == "no layer of that name"
    words = "to fix this issue: (1) Implement `get_config` and `from_config`"
    assert shorten(words, 40) == "to fix this issue: (1) Implement..."
    assert shorten(words, len(words)) == words
    assert all(len(shorten(words, most)) <= most for most in range(4, 70))
    assert shorten("x" * 50, 20) == "x" * 17 + "..."
