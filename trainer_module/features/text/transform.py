"""The transformation of texts to indices and weights, in the graph that also serves."""

from __future__ import annotations

import functools
import math
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft

from trainer_module.errors import DataError
from trainer_module.features import vocabularies
from trainer_module.features.categorical import PADDING
from trainer_module.features.raw_columns import AnyTensor, dense_strings
from trainer_module.features.scaling import hash_values
from trainer_module.features.vocabulary_orders import Counts, most_frequent

if TYPE_CHECKING:
    from trainer_module.features.text.text import TextFeature


_MARKS = 3
"""The most combining marks on one letter: Vietnamese has two, Greek three."""
_SHIFT = 21
"""The number of bits of a code point."""
_CODE = (1 << _SHIFT) - 1
_BETWEEN = "\ufdd0"
"""A separator that no text contains, as Unicode reserves it as a noncharacter."""
_BEYOND = 0x30000
"""The code point from which on no character has a decomposition."""
_HANGUL = range(0xAC00, 0xD7A4)
"""The Hangul syllables, whose decomposition Unicode computes."""


def normalize(texts: tf.Tensor, lower: bool) -> tf.Tensor:
    """Returns texts as well-formed UTF-8, in form NFKC, and optionally in lower case.

    Combining marks that are not in Unicode's canonical order stay in their order.

    Args:
      texts: [batch] strings; bytes that are not UTF-8 become U+FFFD.
      lower: whether to convert to lower case.
    """
    texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
    # Splitting a text takes a hundred times as long as matching a pattern.
    texts = _change_matching(texts, _character_class(_compatible()[0]), _replace)
    texts = _change_matching(texts, _character_class(np.unique(_pairs()[0] & _CODE)), _compose)
    return tf.strings.lower(texts, "utf-8") if lower else texts


def _change_matching(
    texts: tf.Tensor, marks: str, change: Callable[[tf.Tensor], tf.Tensor]
) -> tf.Tensor:
    """Returns the texts after changing all texts that contain a character of a class."""
    places = tf.where(~tf.strings.regex_full_match(texts, f"[^{marks}]*"))
    return tf.tensor_scatter_nd_update(texts, places, change(tf.gather_nd(texts, places)))


def _character_class(codes: np.ndarray) -> str:
    """Returns sorted code points as the inside of an RE2 character class."""
    ends = np.flatnonzero(np.diff(codes) > 1)
    runs = zip(codes[[0, *(ends + 1)]], codes[[*ends, -1]], strict=True)
    return "".join(rf"\x{{{first:X}}}-\x{{{last:X}}}" for first, last in runs)


@tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
def _replace(texts: tf.Tensor) -> tf.Tensor:
    """Returns texts in which each character has its NFKC form.

    As a tf.function its operations are created once, and not in each of the graphs that TensorFlow
    Transform traces.
    """
    keys, values = _compatible()
    apart = tf.strings.regex_replace(
        texts, f"([{_character_class(keys)}])", rf"{_BETWEEN}\1{_BETWEEN}"
    )
    pieces = tf.strings.split(apart, _BETWEEN)
    is_one = tf.strings.length(pieces.flat_values, "UTF8_CHAR") == 1
    ones = tf.where(is_one, pieces.flat_values, "")
    codes = _codes(ones).to_tensor(0, shape=[None, 1])[:, 0]
    return _join(pieces, _look_up(keys, values, codes, pieces.flat_values))


@tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
def _compose(texts: tf.Tensor) -> tf.Tensor:
    """Returns texts with letters and combining marks composed, [batch]; a tf.function as
    `_replace`.
    """
    return tf.while_loop(
        lambda time, _: time < _MARKS, lambda time, t: (time + 1, _compose_pairs(t)), (0, texts)
    )[1]


def _compose_pairs(texts: tf.Tensor) -> tf.Tensor:
    """Returns texts in which pairs of characters with a composition are composed once."""
    keys, values = _pairs()
    codes, single = _codes(texts), tf.strings.unicode_split(texts, "UTF-8").flat_values
    rows, code = codes.value_rowids(), codes.flat_values
    same_row = tf.concat([[False], rows[1:] == rows[:-1]], 0)[: tf.size(rows)]
    before = tf.where(same_row, tf.roll(code, 1, 0), tf.zeros_like(code))
    pair = tf.bitwise.left_shift(before, _SHIFT) + code
    composed = _look_up(keys, values, pair, tf.fill(tf.shape(code), ""))
    is_second = composed != ""
    # In a run of three composable characters, the first two are composed.
    is_second &= ~tf.concat([[False], is_second[:-1]], 0)[: tf.size(rows)]
    is_first = tf.concat([is_second[1:], [False]], 0)[: tf.size(rows)]
    merged = tf.where(is_first, tf.roll(composed, -1, 0), tf.where(is_second, "", single))
    return _join(codes, merged)


def _codes(texts: tf.Tensor) -> tf.RaggedTensor:
    return tf.cast(tf.strings.unicode_decode(texts, "UTF-8"), tf.int64)


def _join(like: tf.RaggedTensor, pieces: tf.Tensor) -> tf.Tensor:
    """Returns texts that join as many pieces as there are values in each row."""
    return tf.strings.reduce_join(like.with_values(pieces), axis=1)


def _look_up(
    keys: np.ndarray, values: np.ndarray, codes: tf.Tensor, default: tf.Tensor
) -> tf.Tensor:
    """Returns the value of each code, [n], in a sorted table, or its `default`."""
    places = tf.minimum(tf.searchsorted(keys, codes), len(keys) - 1)
    return tf.where(tf.gather(keys, places) == codes, tf.gather(values, places), default)


@functools.cache
def _compatible() -> tuple[np.ndarray, np.ndarray]:
    """Returns the sorted characters that NFKC changes, and their NFKC forms."""
    found = {
        code: unicodedata.normalize("NFKC", character).encode()
        for code, character in _characters()
        if not unicodedata.is_normalized("NFKC", character)
    }
    return np.array(list(found)), np.array(list(found.values()))


@functools.cache
def _pairs() -> tuple[np.ndarray, np.ndarray]:
    """Returns the pairs of characters that NFC composes, as sorted numbers, and their
    compositions.
    """
    found = {}
    for _, character in _characters():
        parts = unicodedata.normalize("NFD", character)
        if len(parts) > 1 and unicodedata.normalize("NFC", parts) == character:
            first = unicodedata.normalize("NFC", parts[:-1])
            found[(ord(first) << _SHIFT) + ord(parts[-1])] = character.encode()
    keys = sorted(found)
    return np.array(keys), np.array([found[key] for key in keys])


def _characters() -> Iterator[tuple[int, str]]:
    """Yields the characters that have a decomposition, with their code points."""
    for code in range(0x80, _BEYOND):
        if unicodedata.decomposition(chr(code)) or code in _HANGUL:
            yield code, chr(code)


_APOSTROPHES = "[\u2018\u2019\u02bc]"
_SIGNS = r"([\p{S}!?])"
"""The characters that are words of their own: emoji, currencies, exclamation and question marks."""
_BETWEEN_WORDS = r"[^\p{L}\p{M}\p{N}\p{S}!?'_]+"
_QUOTES = (r"(^|\s)'+", r"'+(\s|$)")
_BLANKS = r"[\s\p{Z}\p{C}]+"


def words(texts: tf.Tensor, length: int) -> tf.RaggedTensor:
    """Returns runs of letters and digits, with inner apostrophes; [batch, (words)]."""
    texts = tf.strings.regex_replace(texts, _APOSTROPHES, "'")
    texts = tf.strings.regex_replace(texts, _BETWEEN_WORDS, " ")
    texts = tf.strings.regex_replace(texts, _SIGNS, r" \1 ")
    # Both patterns, as the space that ends one quotation may begin the next.
    for quotes in _QUOTES:
        texts = tf.strings.regex_replace(texts, quotes, " ")
    return tf.strings.split(texts)[:, :length]


def characters(texts: tf.Tensor, length: int) -> tf.RaggedTensor:
    """Returns each character, with white space as one space; [batch, (characters)]."""
    texts = tf.strings.strip(tf.strings.regex_replace(texts, _BLANKS, " "))
    # Truncated before splitting, as a text may be much longer than its used part.
    return tf.strings.unicode_split(tf.strings.substr(texts, 0, length, "UTF8_CHAR"), "UTF-8")


TOKENIZERS: dict[str, Callable[[tf.Tensor, int], tf.RaggedTensor]] = {
    "words": words,
    "characters": characters,
}
"""The tokenizers by the name in `tokens`.

They take normalised texts, [batch], and the most tokens of each, and return [batch, (tokens)]."""
SEPARATORS = {"words": " ", "characters": ""}
"""The separators of the tokens of an n-gram."""


TEXTS = "\x1f"
"""An entry that is counted once per nonempty text beside the terms; no token contains it."""


def transform_texts(
    columns: Mapping[str, AnyTensor], features: Mapping[str, TextFeature]
) -> dict[str, tf.Tensor]:
    """Transforms all columns of text, with one analysis of the train split for all vocabularies."""
    texts = {name: _read(name, column) for name, column in columns.items()}
    of_pieces = {n: text for n, text in texts.items() if features[n].tokens == "wordpiece"}
    terms = {n: find_terms(texts[n], *features[n].reading) for n in texts if n not in of_pieces}
    outputs: dict[str, tf.Tensor] = {}
    if of_pieces:
        # Only this tokenizer needs tensorflow-text.
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
    paths, rarity = vocabularies.compute_weighted_vocabularies(values, orders, rarities)
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
    """The order of a vocabulary of terms: padding, then the terms of the most texts; empty for a
    hash.
    """

    column: str
    size: int
    hash_buckets: int | None = None

    @classmethod
    def of(cls, column: str, feature: TextFeature) -> TermOrder:
        """Returns the order for the settings of a column."""
        return cls(column, feature.vocabulary_size, feature.hash_buckets)

    def __call__(self, counts: Counts) -> list[bytes]:
        """Returns the vocabulary by index; raises DataError without any token."""
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
    """The inverse document frequency of the terms; 0 for padding.

    It is smoothed as in scikit-learn's `TfidfVectorizer`: as if one more text had every term, plus
    1.
    """

    order: TermOrder

    def __call__(self, counts: Counts) -> list[float]:
        """Returns the values by index, in the order of the vocabulary or of the hash buckets."""
        found = dict(counts)
        terms = self.order(counts)[1:]
        if self.order.hash_buckets:
            terms = [str(index + 1).encode() for index in range(self.order.hash_buckets)]
        texts = found.get(TEXTS.encode(), 0)
        return [0.0, *(math.log((1 + texts) / (1 + found.get(t, 0))) + 1 for t in terms)]


def _read(name: str, column: AnyTensor) -> tf.Tensor:
    """Returns a column of text, [batch] string, empty where missing."""
    if column.dtype != tf.string:
        raise DataError(
            f"column {name!r} holds numbers, and cannot be text; use type: numeric or categorical."
        )
    return dense_strings(column)[:, 0]


@tf.function(autograph=False)
def find_terms(
    texts: tf.Tensor, tokens: str, lower: bool, length: int, ngrams: int
) -> tf.RaggedTensor:
    """Returns the tokens, or the n-grams of tokens, [batch, (terms)].

    It and the functions below are tf.functions for the reason of `_replace`.

    Args:
      texts: [batch].
      tokens: the name of the tokenizer.
      lower: whether to convert to lower case.
      length: the most tokens; longer texts are truncated.
      ngrams: the longest n-grams, in tokens.
    """
    found = TOKENIZERS[tokens](normalize(texts, lower), length)
    if ngrams == 1:
        return found
    return tf.strings.ngrams(found, [*range(1, ngrams + 1)], separator=SEPARATORS[tokens])


def _hashed(terms: tf.RaggedTensor, feature: TextFeature) -> tf.RaggedTensor:
    """Returns the terms, or if they are hashed, the decimal digits of their indices, from 1 on."""
    if not feature.hash_buckets:
        return terms
    indices = tf.strings.to_hash_bucket_fast(terms.flat_values, feature.hash_buckets) + 1
    return terms.with_values(tf.strings.as_string(indices))


def _padded(terms: tf.RaggedTensor, feature: TextFeature) -> tf.Tensor:
    """Returns the tokens padded to [batch, max_tokens] string."""
    return terms.to_tensor(PADDING, shape=[None, feature.max_tokens])


@tf.function(autograph=False)
def _once_in_each_text(terms: tf.RaggedTensor) -> tf.Tensor:
    """Returns the distinct terms of each row, concatenated, and `TEXTS` once per nonempty row."""
    rows = terms.value_rowids()
    named = tf.strings.join([tf.strings.as_string(rows), terms.flat_values], TEXTS)
    different, places = tf.unique(named)
    first = tf.math.unsorted_segment_min(tf.range(tf.size(named)), places, tf.size(different))
    texts = tf.size(tf.unique(rows)[0])
    return tf.concat([tf.gather(terms.flat_values, first), tf.fill([texts], TEXTS)], 0)


@tf.function(autograph=False)
def _weigh(indices: tf.RaggedTensor, rarity: tf.Tensor, width: int) -> tf.Tensor:
    """Returns the index and the TF-IDF of each term, [batch, width, 2], with rows of L2 norm 1.

    Args:
      indices: [batch, (terms)], 0 for a term without an index.
      rarity: the inverse document frequency by index.
      width: the most distinct terms of a row.
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
