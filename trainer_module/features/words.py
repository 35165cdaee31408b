"""The frequent words of texts and categories, as numbers that every model can take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import tensorflow as tf
import tensorflow_transform as tft

from trainer_module.features.base import MAX_WORDS, WORDS_SUFFIX
from trainer_module.features.raw_columns import AnyTensor, dense_strings
from trainer_module.features.vocabularies import compute_vocabularies
from trainer_module.features.vocabulary_orders import ByFrequency

_NO_WORD = "<no word>"
"""The first entry of each vocabulary, which therefore is never empty; no word contains a space."""
_BETWEEN = r"[^\p{L}\p{M}\p{N}\p{S}.'_-]+"
"""A pattern of the characters between words. A decimal point and a hyphen may be in a word."""
_EDGES = (r"(^|\s)[.'-]+", r"[.'-]+(\s|$)")


class HasWords(Protocol):
    """The settings of a feature with frequent words."""

    @property
    def words(self) -> int:
        """The number of frequent words."""


def word_flags(
    columns: Mapping[str, AnyTensor], features: Mapping[str, HasWords]
) -> dict[str, tf.Tensor]:
    """Returns 1 for each frequent word that a value contains, else 0, [batch, words] float32.

    Args:
      columns: the raw columns by name.
      features: the settings of the columns by name; columns without `words` have no result.

    Returns:
      The tensors by the column's name and `WORDS_SUFFIX`.
    """
    sizes = {name + WORDS_SUFFIX: f.words for name, f in features.items() if f.words}
    if not sizes:
        return {}
    words = {name: _split(columns[name.removesuffix(WORDS_SUFFIX)]) for name in sizes}
    orders = {name: ByFrequency(size, (_NO_WORD,), name) for name, size in sizes.items()}
    paths = compute_vocabularies({n: found.flat_values for n, found in words.items()}, orders)
    return {name: _flag(found, paths[name], sizes[name]) for name, found in words.items()}


def _split(column: AnyTensor) -> tf.RaggedTensor:
    """Returns the words of each value in lower case, [batch, (words)] string."""
    texts = dense_strings(column)[:, 0]
    texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
    texts = tf.strings.regex_replace(tf.strings.lower(texts, "utf-8"), _BETWEEN, " ")
    for edge in _EDGES:
        texts = tf.strings.regex_replace(texts, edge, " ")
    return tf.strings.split(texts)[:, :MAX_WORDS]


def _flag(words: tf.RaggedTensor, path: tf.Tensor, size: int) -> tf.Tensor:
    """Returns 1 for each word of a vocabulary that a value contains, else 0, [batch, size] float32.

    Args:
      words: the words of each value, [batch, (words)].
      path: the path of the vocabulary, whose first entry is no word.
      size: the maximum number of words in the vocabulary.
    """
    found = tft.apply_vocabulary(words.flat_values, path, default_value=-1)
    indices = words.with_values(found).to_tensor(-1)
    return tf.minimum(tf.reduce_sum(tf.one_hot(indices, size + 1), 1), 1.0)[:, 1:]
