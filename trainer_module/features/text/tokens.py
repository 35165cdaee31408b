"""What a text is taken apart into; to add a way, its function and its line in `TOKENIZERS`."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

_APOSTROPHES = "[\u2018\u2019\u02bc]"
_SIGNS = r"([\p{S}!?])"
"""What is a word by itself: emoji, currencies, and marks that say how something is meant."""
_BETWEEN = r"[^\p{L}\p{M}\p{N}\p{S}!?'_]+"
_QUOTES = (r"(^|\s)'+", r"'+(\s|$)")
_BLANKS = r"[\s\p{Z}\p{C}]+"


def words(texts: tf.Tensor, length: int) -> tf.RaggedTensor:
    """Letters and digits in a row, with apostrophes within; [batch, (words)]."""
    texts = tf.strings.regex_replace(texts, _APOSTROPHES, "'")
    texts = tf.strings.regex_replace(texts, _BETWEEN, " ")
    texts = tf.strings.regex_replace(texts, _SIGNS, r" \1 ")
    # Twice, as the space that ends one quotation may begin the next.
    for quotes in _QUOTES:
        texts = tf.strings.regex_replace(texts, quotes, " ")
    return tf.strings.split(texts)[:, :length]


def characters(texts: tf.Tensor, length: int) -> tf.RaggedTensor:
    """Each character, blanks as one space; [batch, (characters)]."""
    texts = tf.strings.strip(tf.strings.regex_replace(texts, _BLANKS, " "))
    # Cut before it is taken apart, as a text may be much longer than what counts of it.
    return tf.strings.unicode_split(tf.strings.substr(texts, 0, length, "UTF8_CHAR"), "UTF-8")


TOKENIZERS: dict[str, Callable[[tf.Tensor, int], tf.RaggedTensor]] = {
    "words": words,
    "characters": characters,
}
"""By the name in `tokens`: from normalised texts, [batch], and how many tokens of each count, to
[batch, (tokens)]."""
SEPARATORS = {"words": " ", "characters": ""}
"""What stands between the tokens of an n-gram."""
