"""What a text is taken apart into; to add a way, its function and its line in `TOKENIZERS`."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

_APOSTROPHES = "[\u2018\u2019\u02bc]"
_SIGNS = r"([\p{S}!?])"
"""What is a word by itself: emoji, currencies, and marks that say how something is meant."""
_BETWEEN = r"[^\p{L}\p{M}\p{N}\p{S}!?'_]+"
_QUOTES = r"(^|\s)'+|'+(\s|$)"
_BLANKS = r"[\s\p{Z}\p{C}]+"


def words(texts: tf.Tensor) -> tf.RaggedTensor:
    """Letters and digits in a row, with apostrophes within; [batch, (words)]."""
    texts = tf.strings.regex_replace(texts, _APOSTROPHES, "'")
    texts = tf.strings.regex_replace(texts, _BETWEEN, " ")
    texts = tf.strings.regex_replace(texts, _SIGNS, r" \1 ")
    return tf.strings.split(tf.strings.regex_replace(texts, _QUOTES, " "))


def characters(texts: tf.Tensor) -> tf.RaggedTensor:
    """Each character, blanks as one space; [batch, (characters)]."""
    texts = tf.strings.strip(tf.strings.regex_replace(texts, _BLANKS, " "))
    return tf.strings.unicode_split(texts, "UTF-8")


TOKENIZERS: dict[str, Callable[[tf.Tensor], tf.RaggedTensor]] = {
    "words": words,
    "characters": characters,
}
"""By the name in `tokens`: from normalised texts, [batch], to [batch, (tokens)]."""
SEPARATORS = {"words": " ", "characters": ""}
"""What stands between the tokens of an n-gram."""
