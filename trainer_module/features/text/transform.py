"""Texts to indices and weights, in the graph that serves too."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import tensorflow as tf
import tensorflow_transform as tft

from trainer_module.errors import DataError
from trainer_module.features.categorical import PADDING
from trainer_module.features.hashing import hash_values
from trainer_module.features.raw_columns import AnyTensor, dense_strings
from trainer_module.features.text.normalization import normalize
from trainer_module.features.text.tokens import SEPARATORS, TOKENIZERS
from trainer_module.vocabularies import analysis
from trainer_module.vocabularies.orders import Counts, most_frequent

if TYPE_CHECKING:
    from trainer_module.features.text.text import TextFeature

TEXTS = "\x1f"
"""Counted with the terms, once for each text that has some; no token holds it."""


def transform_texts(
    columns: Mapping[str, AnyTensor], features: Mapping[str, TextFeature]
) -> dict[str, tf.Tensor]:
    """All columns of text, with one look at the train split for all vocabularies."""
    texts = {name: _read(name, column) for name, column in columns.items()}
    of_pieces = {n: text for n, text in texts.items() if features[n].tokens == "wordpiece"}
    terms = {n: find_terms(texts[n], *features[n].reading) for n in texts if n not in of_pieces}
    outputs: dict[str, tf.Tensor] = {}
    if of_pieces:
        # The one way to take text apart that needs tensorflow-text.
        from trainer_module.features.text.wordpiece import cut_texts

        outputs |= cut_texts(of_pieces, features)
    outputs |= {
        name: hash_values(_padded(ragged, feature), feature.hash_buckets, PADDING)
        for name, ragged in terms.items()
        if (feature := features[name]).hash_buckets and not feature.is_bag
    }
    counted = {n: _hashed(terms[n], features[n]) for n in terms.keys() - outputs.keys()}
    if not counted:
        return outputs
    orders = {name: TermOrder.of(name, features[name]) for name in counted}
    rarities = {name: Rarities(orders[name]) for name in counted if features[name].is_bag}
    values = {name: _once_in_each_text(ragged) for name, ragged in sorted(counted.items())}
    paths, rarity = analysis.compute_weighted_vocabularies(values, orders, rarities)
    for name, path in paths.items():
        if not features[name].is_bag:
            tokens = _padded(terms[name], features[name])
            outputs[name] = tft.apply_vocabulary(tokens, path, num_oov_buckets=1)
            continue
        flat = counted[name].flat_values
        if features[name].hash_buckets:
            indices = tf.strings.to_number(flat, tf.int64)
        else:
            indices = tft.apply_vocabulary(flat, path, default_value=0)
        bag = counted[name].with_values(indices)
        outputs[name] = _weigh(bag, rarity[name], features[name].terms_in_row)
    return outputs


@dataclass(frozen=True)
class TermOrder:
    """The terms of the most texts first, after padding; of a hash none."""

    column: str
    size: int
    hash_buckets: int | None = None

    @classmethod
    def of(cls, column: str, feature: TextFeature) -> TermOrder:
        """As the settings of a column ask for it."""
        return cls(column, feature.vocabulary_size, feature.hash_buckets)

    def __call__(self, counts: Counts) -> list[bytes]:
        """The vocabulary by index; DataError if there is nothing to learn from."""
        texts = TEXTS.encode()
        if texts not in dict(counts):
            raise DataError(
                f"column {self.column!r} of type: text has no token in any row of the train split: "
                f"leave it out by features: {{{self.column}: {{type: ignore}}}}."
            )
        if self.hash_buckets:
            return []
        others = (count for count in counts if count[0] != texts)
        kept = [value for value, _ in sorted(others, key=most_frequent)]
        return [PADDING.encode(), *kept[: self.size]]


@dataclass(frozen=True)
class Rarities:
    """The logarithm of how many texts there are for one that has the term; of padding 0.

    As if one more text had every term, and 1 more: scikit-learn's `TfidfVectorizer` has it so.
    """

    order: TermOrder

    def __call__(self, counts: Counts) -> list[float]:
        """By index, as the order gives them, or those of the hash."""
        found = dict(counts)
        terms = self.order(counts)[1:]
        if self.order.hash_buckets:
            terms = [str(index + 1).encode() for index in range(self.order.hash_buckets)]
        texts = found.get(TEXTS.encode(), 0)
        return [0.0, *(math.log((1 + texts) / (1 + found.get(t, 0))) + 1 for t in terms)]


def _read(name: str, column: AnyTensor) -> tf.Tensor:
    """[batch] string, empty where missing."""
    if column.dtype != tf.string:
        raise DataError(
            f"column {name!r} holds numbers, and cannot be text; use type: numeric or categorical."
        )
    return dense_strings(column)[:, 0]


@tf.function(autograph=False)
def find_terms(
    texts: tf.Tensor, tokens: str, lower: bool, length: int, ngrams: int
) -> tf.RaggedTensor:
    """[batch, (tokens)], and n-grams of them.

    A function, as `normalization._replace` is; so are those below.

    Args:
      texts: [batch].
      tokens: the name of what they are taken apart into.
      lower: whether capital letters count as small ones.
      length: of more tokens the first ones count.
      ngrams: so many tokens in a row are a term, at most.
    """
    found = TOKENIZERS[tokens](normalize(texts, lower), length)
    if ngrams == 1:
        return found
    return tf.strings.ngrams(found, [*range(1, ngrams + 1)], separator=SEPARATORS[tokens])


def _hashed(terms: tf.RaggedTensor, feature: TextFeature) -> tf.RaggedTensor:
    """Where they are hashed, the terms as the digits of their indices, from 1 on."""
    if not feature.hash_buckets:
        return terms
    indices = tf.strings.to_hash_bucket_fast(terms.flat_values, feature.hash_buckets) + 1
    return terms.with_values(tf.strings.as_string(indices))


def _padded(terms: tf.RaggedTensor, feature: TextFeature) -> tf.Tensor:
    """[batch, max_tokens] string."""
    return terms.to_tensor(PADDING, shape=[None, feature.max_tokens])


@tf.function(autograph=False)
def _once_in_each_text(terms: tf.RaggedTensor) -> tf.Tensor:
    """The different terms of each row, all in a row, and `TEXTS` once for each that has some."""
    rows = terms.value_rowids()
    named = tf.strings.join([tf.strings.as_string(rows), terms.flat_values], TEXTS)
    different, places = tf.unique(named)
    first = tf.math.unsorted_segment_min(tf.range(tf.size(named)), places, tf.size(different))
    texts = tf.size(tf.unique(rows)[0])
    return tf.concat([tf.gather(terms.flat_values, first), tf.fill([texts], TEXTS)], 0)


@tf.function(autograph=False)
def _weigh(indices: tf.RaggedTensor, rarity: tf.Tensor, width: int) -> tf.Tensor:
    """[batch, width, 2]: of each term the index and the TF-IDF; the squares of a row add up to 1.

    Args:
      indices: [batch, (terms)], 0 for a term that has none.
      rarity: by index.
      width: different terms of a row, at most.
    """
    count = indices.nrows()
    known = tf.where(indices.flat_values > 0)[:, 0]
    rows = tf.gather(indices.value_rowids(), known)
    size = tf.size(rarity, tf.int64)
    keys = rows * size + tf.gather(indices.flat_values, known)
    different, _, times = tf.unique_with_counts(keys)
    rows, terms = different // size, different % size
    weights = (1 + tf.math.log(tf.cast(times, tf.float32))) * tf.gather(rarity, terms)
    lengths = tf.sqrt(tf.math.unsorted_segment_sum(tf.square(weights), rows, count))
    pairs = tf.stack([tf.cast(terms, tf.float32), weights / tf.gather(lengths, rows)], 1)
    ragged = tf.RaggedTensor.from_value_rowids(pairs, rows, count, validate=False)
    return ragged.to_tensor(0.0, shape=[None, width, 2])
