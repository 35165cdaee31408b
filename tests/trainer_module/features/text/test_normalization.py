"""Normal forms, against Python's."""

from __future__ import annotations

import random
import unicodedata

import tensorflow as tf

from trainer_module.features.text.transform import characters, cut_words, normalize, words

BLOCKS = [
    range(0x20, 0x7F),
    range(0xA0, 0x250),
    range(0x370, 0x590),
    range(0x900, 0x980),
    range(0x1100, 0x1200),
    range(0x1E00, 0x2200),
    range(0x3040, 0x3400),
    range(0xAC00, 0xAD00),
    range(0xF900, 0xFB50),
    range(0xFF00, 0xFFF0),
    range(0x1D400, 0x1D500),
    range(0x1F600, 0x1F650),
]
"""Latin, Greek and Cyrillic, Devanagari, Hangul, signs, kana, compatible forms, emoji."""


def normal(texts: list[str | bytes], lower: bool = False) -> list[str]:
    return [text.decode() for text in normalize(tf.constant(texts), lower).numpy()]


def test_characters_have_the_form_that_python_gives_them() -> None:
    texts = [chr(code) for block in BLOCKS for code in block]
    assert normal(texts) == [unicodedata.normalize("NFKC", text) for text in texts]


def test_letters_and_their_marks_are_put_together() -> None:
    generator = random.Random(7)  # noqa: S311
    letters = "aeiouAEIOUyncg\u03b1\u03b7\u03c9\u0438"
    pairs = [letter + chr(mark) for letter in letters for mark in range(0x300, 0x30F)]
    whole = ["".join(generator.choices(pairs, k=9)) for _ in range(200)]
    whole += ["Vi\u1ec7t", "\ud55c\uad6d\uc5b4", "\u1f8c"]
    texts = [unicodedata.normalize("NFD", text) for text in whole]
    assert normal(texts) == [unicodedata.normalize("NFKC", text) for text in texts]


def test_bytes_that_are_no_utf_8_are_replaced_and_nothing_is_lost() -> None:
    texts = ["", "plain\nText", b"a\xff\xfeb", b"\xc3"]
    assert normal(texts) == ["", "plain\nText", "a\ufffd\ufffdb", "\ufffd"]
    assert normal(["STRASSE \u00c9\u0130 \u03a3"], lower=True)[0].startswith("strasse \u00e9i")


def test_words_and_characters() -> None:
    def tokens(texts: list[str], take_apart: object) -> list[list[str]]:
        return [[t.decode() for t in row] for row in take_apart(tf.constant(texts), 9).to_list()]

    texts = ["don't 'quote' it!!", "5 \u20ac, a-b (c_d) 3.5", "\U0001f600\U0001f600", "... ", ""]
    assert tokens(texts, words) == [
        ["don't", "quote", "it", "!", "!"],
        ["5", "\u20ac", "a", "b", "c_d", "3", "5"],
        ["\U0001f600", "\U0001f600"],
        [],
        [],
    ]
    assert tokens([" a \t b\u00a0\u4e2d", "\n"], characters) == [["a", " ", "b", " ", "\u4e2d"], []]
    assert tokens(["'so' 'called' ''it''"], words) == [["so", "called", "it"]]
    assert tokens(["\u4e2d" * 100_000, ""], characters) == [["\u4e2d"] * 9, []]


def test_characters_are_composed_after_compatibility_forms() -> None:
    texts = ["\uff76\uff9e\u2026\uff76\uff9e", "\ufb01\u0301\u00a0x", "e\u2026\u0301", "\u00bd"]
    assert normal(texts) == [unicodedata.normalize("NFKC", text) for text in texts]


def test_characters_within_words_are_cut_up_to_the_limit() -> None:
    texts = tf.ragged.constant([[], ["ab", "öde"], ["abcd"] * 20_000], dtype=tf.string)
    empty, short, long = cut_words(texts, 4, 9).to_list()
    assert empty == []
    grams = [" ab", "ab ", " ab ", " öd", "öde", "de ", " öde", "öde "]
    assert [gram.decode()[1:] for gram in short] == grams
    assert [gram.decode()[1:] for gram in long[:4]] == [" ab", "abc", "bcd", "cd "]
    assert len(long) == 9
