"""Unicode's NFKC in TensorFlow's own operations, so that any server can run it.

TensorFlow has no such operation, and that of TensorFlow Text is not in every server. The tables are
Python's; TensorFlow looks characters up in them.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

_MARKS = 3
"""That are put together with one letter: Vietnamese has two, Greek three."""
_SHIFT = 21
"""Bits of a code point."""
_CODE = (1 << _SHIFT) - 1
_BETWEEN = "\ufdd0"
"""Stands in no text, by Unicode's own word."""
_BEYOND = 0x30000
"""Where no character is made of others any more."""
_HANGUL = range(0xAC00, 0xD7A4)
"""Syllables, whose parts Unicode computes."""


def normalize(texts: tf.Tensor, lower: bool) -> tf.Tensor:
    """Text as it is compared: well-formed, in form NFKC, in small letters where asked.

    Marks that stand in another order than Unicode's are left so.

    Args:
      texts: [batch] strings; bytes that are no UTF-8 become U+FFFD.
      lower: whether capital letters become small.
    """
    texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
    # To take a text apart takes a hundred times as long as to look at it.
    texts = _changed(texts, _any_of(_compatible()[0]), _replace)
    texts = _changed(texts, _any_of(np.unique(_pairs()[0] & _CODE)), _compose)
    return tf.strings.lower(texts, "utf-8") if lower else texts


def _changed(texts: tf.Tensor, marks: str, change: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
    """The texts, those changed that have some of the marks, a class of characters."""
    places = tf.where(~tf.strings.regex_full_match(texts, f"[^{marks}]*"))
    return tf.tensor_scatter_nd_update(texts, places, change(tf.gather_nd(texts, places)))


def _any_of(codes: np.ndarray) -> str:
    """What RE2 has between the brackets of a class of characters; these are sorted."""
    ends = np.flatnonzero(np.diff(codes) > 1)
    runs = zip(codes[[0, *(ends + 1)]], codes[[*ends, -1]], strict=True)
    return "".join(rf"\x{{{first:X}}}-\x{{{last:X}}}" for first, last in runs)


@tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
def _replace(texts: tf.Tensor) -> tf.Tensor:
    """Each character that NFKC writes otherwise, written so.

    A function, as its operations are then made once and not in each of the graphs that TensorFlow
    Transform traces.
    """
    keys, values = _compatible()
    apart = tf.strings.regex_replace(texts, f"([{_any_of(keys)}])", rf"{_BETWEEN}\1{_BETWEEN}")
    pieces = tf.strings.split(apart, _BETWEEN)
    is_one = tf.strings.length(pieces.flat_values, "UTF8_CHAR") == 1
    ones = tf.where(is_one, pieces.flat_values, "")
    codes = _codes(ones).to_tensor(0, shape=[None, 1])[:, 0]
    return _join(pieces, _look_up(keys, values, codes, pieces.flat_values))


@tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
def _compose(texts: tf.Tensor) -> tf.Tensor:
    """Letters and their marks put together, [batch]; a function, as `_replace` is."""
    return tf.while_loop(
        lambda time, _: time < _MARKS, lambda time, t: (time + 1, _pair_up(t)), (0, texts)
    )[1]


def _pair_up(texts: tf.Tensor) -> tf.Tensor:
    """Puts each two characters together that go together."""
    keys, values = _pairs()
    codes, single = _codes(texts), tf.strings.unicode_split(texts, "UTF-8").flat_values
    rows, code = codes.value_rowids(), codes.flat_values
    same_row = tf.concat([[False], rows[1:] == rows[:-1]], 0)[: tf.size(rows)]
    before = tf.where(same_row, tf.roll(code, 1, 0), tf.zeros_like(code))
    pair = tf.bitwise.left_shift(before, _SHIFT) + code
    composed = _look_up(keys, values, pair, tf.fill(tf.shape(code), ""))
    is_second = composed != ""
    # Of three in a row that go together, the first two do.
    is_second &= ~tf.concat([[False], is_second[:-1]], 0)[: tf.size(rows)]
    is_first = tf.concat([is_second[1:], [False]], 0)[: tf.size(rows)]
    merged = tf.where(is_first, tf.roll(composed, -1, 0), tf.where(is_second, "", single))
    return _join(codes, merged)


def _codes(texts: tf.Tensor) -> tf.RaggedTensor:
    return tf.cast(tf.strings.unicode_decode(texts, "UTF-8"), tf.int64)


def _join(like: tf.RaggedTensor, pieces: tf.Tensor) -> tf.Tensor:
    """Texts of as many pieces as there are values in each row."""
    return tf.strings.reduce_join(like.with_values(pieces), axis=1)


def _look_up(
    keys: np.ndarray, values: np.ndarray, codes: tf.Tensor, otherwise: tf.Tensor
) -> tf.Tensor:
    """The value of each code, [n], in a sorted table, or what it is otherwise."""
    places = tf.minimum(tf.searchsorted(keys, codes), len(keys) - 1)
    return tf.where(tf.gather(keys, places) == codes, tf.gather(values, places), otherwise)


@functools.cache
def _compatible() -> tuple[np.ndarray, np.ndarray]:
    """Characters, sorted, that NFKC writes otherwise, and how."""
    found = {
        code: unicodedata.normalize("NFKC", character).encode()
        for code, character in _characters()
        if not unicodedata.is_normalized("NFKC", character)
    }
    return np.array(list(found)), np.array(list(found.values()))


@functools.cache
def _pairs() -> tuple[np.ndarray, np.ndarray]:
    """Two characters, as one sorted number, that NFC makes one of, and which."""
    found = {}
    for _, character in _characters():
        parts = unicodedata.normalize("NFD", character)
        if len(parts) > 1 and unicodedata.normalize("NFC", parts) == character:
            first = unicodedata.normalize("NFC", parts[:-1])
            found[(ord(first) << _SHIFT) + ord(parts[-1])] = character.encode()
    keys = sorted(found)
    return np.array(keys), np.array([found[key] for key in keys])


def _characters() -> Iterator[tuple[int, str]]:
    """Those that are made of others."""
    for code in range(0x80, _BEYOND):
        if unicodedata.decomposition(chr(code)) or code in _HANGUL:
            yield code, chr(code)
