"""The transformation of texts to indices and weights, in training and in serving."""

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

from trainer_module.errors import DataError, as_key
from trainer_module.features import vocabularies
from trainer_module.features.categorical import PADDING
from trainer_module.features.raw_columns import AnyTensor, dense_strings
from trainer_module.features.scaling import hash_values
from trainer_module.features.text.text import CHARACTERS
from trainer_module.features.vocabulary_orders import Counts, most_frequent
from trainer_module.features.words import word_flags

if TYPE_CHECKING:
    from trainer_module.features.text.text import TextFeature


_MAX_MARKS = 3
"""The maximum number of combining marks of a letter: Vietnamese has two, Greek three."""
_SHIFT = 21
"""The number of bits of a code point."""
_CODE = (1 << _SHIFT) - 1
"""The mask of the second code point of a pair."""
_SEPARATOR = "\ufdd0"
"""A separator that no text contains; Unicode reserves it as a noncharacter."""
_END_OF_DECOMPOSITIONS = 0x30000
"""The code point after the last character that has a decomposition."""
_HANGUL = range(0xAC00, 0xD7A4)
"""The Hangul syllables, whose decomposition Unicode computes."""


def normalize(texts: tf.Tensor, lower: bool) -> tf.Tensor:
    """Returns texts as well-formed UTF-8, in Unicode's form NFKC, and optionally in lower case.

    Unlike NFKC, the function does not reorder combining marks.

    Args:
      texts: [batch] strings; bytes that are not UTF-8 become U+FFFD.
      lower: whether to convert to lower case.
    """
    texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
    # Only texts with special characters are split: splitting takes a hundred times as long.
    texts = _change_matching(texts, _character_class(_compatible()[0]), _replace)
    texts = _change_matching(texts, _character_class(np.unique(_pairs()[0] & _CODE)), _compose)
    return tf.strings.lower(texts, "utf-8") if lower else texts


def _change_matching(
    texts: tf.Tensor, characters: str, change: Callable[[tf.Tensor], tf.Tensor]
) -> tf.Tensor:
    """Returns the texts; `change` is applied to texts that contain one of the characters.

    Args:
      texts: [batch] strings.
      characters: the result of `_character_class`.
      change: a function from texts to changed texts.
    """
    rows = tf.where(~tf.strings.regex_full_match(texts, f"[^{characters}]*"))
    return tf.tensor_scatter_nd_update(texts, rows, change(tf.gather_nd(texts, rows)))


def _character_class(codes: np.ndarray) -> str:
    """Returns an RE2 character class of sorted code points, without its brackets."""
    ends = np.flatnonzero(np.diff(codes) > 1)
    runs = zip(codes[[0, *(ends + 1)]], codes[[*ends, -1]], strict=True)
    return "".join(rf"\x{{{first:X}}}-\x{{{last:X}}}" for first, last in runs)


@tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
def _replace(texts: tf.Tensor) -> tf.Tensor:
    """Returns texts in which the NFKC form replaces each character.

    The function is a tf.function, so that its operations are created once, and not in each graph
    that TensorFlow Transform traces.
    """
    keys, values = _compatible()
    separated = tf.strings.regex_replace(
        texts, f"([{_character_class(keys)}])", rf"{_SEPARATOR}\1{_SEPARATOR}"
    )
    pieces = tf.strings.split(separated, _SEPARATOR)
    is_character = tf.strings.length(pieces.flat_values, "UTF8_CHAR") == 1
    single = tf.where(is_character, pieces.flat_values, "")
    codes = _codes(single).to_tensor(0, shape=[None, 1])[:, 0]
    return _join(pieces, _look_up(keys, values, codes, pieces.flat_values))


@tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
def _compose(texts: tf.Tensor) -> tf.Tensor:
    """Returns texts in which letters are composed with their combining marks.

    The function is a tf.function for the same reason as `_replace`.
    """
    return tf.while_loop(
        lambda step, _: step < _MAX_MARKS,
        lambda step, partial: (step + 1, _compose_pairs(partial)),
        (0, texts),
    )[1]


def _compose_pairs(texts: tf.Tensor) -> tf.Tensor:
    """Returns texts in which each pair of characters that has a composition is composed once."""
    keys, values = _pairs()
    codes, single = _codes(texts), tf.strings.unicode_split(texts, "UTF-8").flat_values
    rows, code = codes.value_rowids(), codes.flat_values
    same_row = tf.concat([[False], rows[1:] == rows[:-1]], 0)[: tf.size(rows)]
    before = tf.where(same_row, tf.roll(code, 1, 0), tf.zeros_like(code))
    pair = tf.bitwise.left_shift(before, _SHIFT) + code
    composed = _look_up(keys, values, pair, tf.fill(tf.shape(code), ""))
    is_second = composed != ""
    # If three characters in a row could be composed, the first two are.
    is_second &= ~tf.concat([[False], is_second[:-1]], 0)[: tf.size(rows)]
    is_first = tf.concat([is_second[1:], [False]], 0)[: tf.size(rows)]
    merged = tf.where(is_first, tf.roll(composed, -1, 0), tf.where(is_second, "", single))
    return _join(codes, merged)


def _codes(texts: tf.Tensor) -> tf.RaggedTensor:
    return tf.cast(tf.strings.unicode_decode(texts, "UTF-8"), tf.int64)


def _join(rows: tf.RaggedTensor, pieces: tf.Tensor) -> tf.Tensor:
    """Returns the joined pieces of each text, [batch].

    Args:
      rows: a tensor with a value for each piece, which defines the texts of the pieces.
      pieces: the pieces of all texts, [n].
    """
    return tf.strings.reduce_join(rows.with_values(pieces), axis=1)


def _look_up(
    keys: np.ndarray, values: np.ndarray, codes: tf.Tensor, default: tf.Tensor
) -> tf.Tensor:
    """Returns the value of each code, [n], or its default if the table does not have the code.

    Args:
      keys: the sorted codes of the table.
      values: the values of the table.
      codes: the codes to look up, [n].
      default: the default of each code, [n].
    """
    rows = tf.minimum(tf.searchsorted(keys, codes), len(keys) - 1)
    return tf.where(tf.gather(keys, rows) == codes, tf.gather(values, rows), default)


@functools.cache
def _compatible() -> tuple[np.ndarray, np.ndarray]:
    """Returns the sorted code points of the characters that NFKC changes, and their NFKC forms."""
    forms = {
        code: unicodedata.normalize("NFKC", character).encode()
        for code, character in _characters()
        if not unicodedata.is_normalized("NFKC", character)
    }
    return np.array(list(forms)), np.array(list(forms.values()))


@functools.cache
def _pairs() -> tuple[np.ndarray, np.ndarray]:
    """Returns the pairs of characters that NFC composes, and their compositions.

    A pair is a number: the first code point, shifted by `_SHIFT`, plus the second code point. The
    pairs are sorted.
    """
    compositions = {}
    for _, character in _characters():
        parts = unicodedata.normalize("NFD", character)
        if len(parts) > 1 and unicodedata.normalize("NFC", parts) == character:
            first = unicodedata.normalize("NFC", parts[:-1])
            compositions[(ord(first) << _SHIFT) + ord(parts[-1])] = character.encode()
    keys = sorted(compositions)
    return np.array(keys), np.array([compositions[key] for key in keys])


def _characters() -> Iterator[tuple[int, str]]:
    """Yields the code point and the character of each character that has a decomposition."""
    for code in range(0x80, _END_OF_DECOMPOSITIONS):
        if unicodedata.decomposition(chr(code)) or code in _HANGUL:
            yield code, chr(code)


_APOSTROPHES = "[\u2018\u2019\u02bc]"
_SIGNS = r"([\p{S}!?])"
"""A pattern of characters that are separate words: emoji, currency signs, ! and ?."""
_BETWEEN_WORDS = r"[^\p{L}\p{M}\p{N}\p{S}!?'_]+"
_QUOTES = (r"(^|\s)'+", r"'+(\s|$)")
_BLANKS = r"[\s\p{Z}\p{C}]+"


def words(texts: tf.Tensor, length: int) -> tf.RaggedTensor:
    """Returns the first `length` words of each text, [batch, (words)].

    A word is a run of letters, digits and inner apostrophes, or a character in `_SIGNS`.
    """
    texts = tf.strings.regex_replace(texts, _APOSTROPHES, "'")
    texts = tf.strings.regex_replace(texts, _BETWEEN_WORDS, " ")
    texts = tf.strings.regex_replace(texts, _SIGNS, r" \1 ")
    # There are two patterns, as a space may end one quotation and begin the next.
    for quotes in _QUOTES:
        texts = tf.strings.regex_replace(texts, quotes, " ")
    return tf.strings.split(texts)[:, :length]


def characters(texts: tf.Tensor, length: int) -> tf.RaggedTensor:
    """Returns the first `length` characters of each text, [batch, (characters)].

    A run of white space is one space.
    """
    texts = tf.strings.strip(tf.strings.regex_replace(texts, _BLANKS, " "))
    # Texts may be much longer than `length`, so they are truncated before they are split.
    return tf.strings.unicode_split(tf.strings.substr(texts, 0, length, "UTF8_CHAR"), "UTF-8")


TOKENIZERS: dict[str, Callable[[tf.Tensor, int], tf.RaggedTensor]] = {
    "words": words,
    "characters": characters,
}
"""The tokenizers by the name in `tokens`.

A tokenizer takes normalised texts, [batch], and the maximum number of tokens per text, and returns
the tokens, [batch, (tokens)]."""
SEPARATORS = {"words": " ", "characters": ""}
"""The separators of the tokens of an n-gram."""


TEXTS = "\x1f"
"""An additional entry that is counted once per nonempty text; no token contains it."""
_WITHIN_WORD = "\x1e"
"""The first character of an n-gram of characters; no word contains it."""
_MIN_TEXTS = 2
"""The minimum number of texts with an n-gram of characters of the vocabulary; most occur once."""


def transform_texts(
    columns: Mapping[str, AnyTensor], features: Mapping[str, TextFeature]
) -> dict[str, tf.Tensor]:
    """Returns the transformed columns of text; one analysis computes the vocabularies.

    Args:
      columns: the raw columns by name.
      features: the settings of the columns by name.

    Raises:
      DataError: a column holds numbers, or the column has no token in the train split.
    """
    texts = {name: _read(name, column) for name, column in columns.items()}
    wordpiece = {n: text for n, text in texts.items() if features[n].tokens == "wordpiece"}
    terms = {n: _find_terms(texts[n], features[n]) for n in texts if n not in wordpiece}
    outputs = word_flags(columns, features)
    if wordpiece:
        # The module is imported here, as only this tokenizer needs tensorflow-text.
        from trainer_module.features.text.wordpiece import cut_texts

        outputs |= cut_texts(wordpiece, features)
    outputs |= {
        name: hash_values(_pad(tokens, feature), feature.hash_buckets, PADDING)
        for name, (tokens, *_) in terms.items()
        if (feature := features[name]).hash_buckets and not feature.is_bag
    }
    counted = {
        name: [_hash_terms(part, features[name]) for part in parts]
        for name, parts in terms.items()
        if name not in outputs
    }
    if not counted:
        return outputs
    orders = {name: TermOrder.of(name, features[name]) for name in counted}
    rarities = {name: Rarities(orders[name]) for name in counted if features[name].is_bag}
    values = {name: _once_in_each_text(tf.concat(p, 1)) for name, p in sorted(counted.items())}
    paths, rarity = vocabularies.compute_weighted_vocabularies(values, orders, rarities)
    for name, path in paths.items():
        if features[name].is_bag:
            outputs[name] = _make_bag(counted[name], path, rarity[name], features[name])
        else:
            tokens = _pad(terms[name][0], features[name])
            outputs[name] = tft.apply_vocabulary(tokens, path, num_oov_buckets=1)
    return outputs


def _make_bag(
    parts: list[tf.RaggedTensor], path: tf.Tensor, rarity: tf.Tensor, feature: TextFeature
) -> tf.Tensor:
    """Returns the index and the TF-IDF of each term of a row, [batch, terms, 2].

    Args:
      parts: the n-grams of tokens, and the n-grams of characters if the feature has them, as
        strings or hashed, [batch, (terms)] each. The TF-IDF values of each have the L2 norm 1.
      path: the path of the vocabulary of all parts.
      rarity: the inverse document frequencies by index.
      feature: the settings of the column.
    """
    flat = tf.concat([part.flat_values for part in parts], 0)
    if feature.hash_buckets:
        indices = tf.strings.to_number(flat, tf.int64)
    else:
        indices = tft.apply_vocabulary(flat, path, default_value=0)
    split = tf.split(indices, [tf.size(part.flat_values) for part in parts])
    widths = (feature.terms_in_row, feature.character_terms_in_row)
    return tf.concat(
        [
            _weigh(part.with_values(found), rarity, width)
            for part, found, width in zip(parts, split, widths, strict=False)
        ],
        1,
    )


@dataclass(frozen=True)
class TermOrder:
    """The order of a vocabulary: padding, the n-grams of tokens, and the n-grams of characters.

    The terms of each kind are in the order of decreasing number of texts. N-grams of characters
    that occur in fewer than `_MIN_TEXTS` texts are left out.
    """

    column: str
    """The name of the column, for messages."""
    size: int
    """The maximum number of terms of each kind."""
    hash_buckets: int | None = None
    """The number of hash buckets, or None for a vocabulary."""

    @classmethod
    def of(cls, column: str, feature: TextFeature) -> TermOrder:
        """Returns the order for the settings of a column."""
        return cls(column, feature.vocabulary_size, feature.hash_buckets)

    def __call__(self, counts: Counts) -> list[bytes]:
        """Returns the vocabulary, or an empty list if the terms are hashed.

        Raises:
          DataError: there is no term.
        """
        texts = TEXTS.encode()
        if texts not in dict(counts):
            raise DataError(
                f"column {self.column!r} of type: text has no token in any row of the train split; "
                f"set features: {{{as_key(self.column)}: {{type: ignore}}}}."
            )
        if self.hash_buckets:
            return []
        of_tokens, within = [], []
        for term, count in sorted((c for c in counts if c[0] != texts), key=most_frequent):
            if not term.startswith(_WITHIN_WORD.encode()):
                of_tokens.append(term)
            elif count >= _MIN_TEXTS:
                within.append(term)
        return [PADDING.encode(), *of_tokens[: self.size], *within[: self.size]]


@dataclass(frozen=True)
class Rarities:
    """The inverse document frequencies of the terms.

    They are smoothed as in scikit-learn's `TfidfVectorizer`: log((1 + texts) / (1 + texts with the
    term)) + 1.
    """

    order: TermOrder

    def __call__(self, counts: Counts) -> list[float]:
        """Returns the frequencies in the order of the vocabulary or the hash buckets.

        The frequency of padding is 0.
        """
        by_term = dict(counts)
        terms = self.order(counts)[1:]
        if self.order.hash_buckets:
            terms = [str(index + 1).encode() for index in range(self.order.hash_buckets)]
        texts = by_term.get(TEXTS.encode(), 0)
        return [0.0, *(math.log((1 + texts) / (1 + by_term.get(t, 0))) + 1 for t in terms)]


def _read(name: str, column: AnyTensor) -> tf.Tensor:
    """Returns a column of text, [batch] string; a missing text is an empty string."""
    if column.dtype != tf.string:
        raise DataError(
            f"column {name!r} holds numbers, and cannot be text; set type: numeric or type: "
            "categorical."
        )
    return dense_strings(column)[:, 0]


def _find_terms(texts: tf.Tensor, feature: TextFeature) -> list[tf.RaggedTensor]:
    """Returns the n-grams of each text's tokens, and the n-grams of characters if the feature has
    them, [batch, (terms)] each.
    """
    tokens = find_tokens(texts, *feature.reading)
    parts = [tokens]
    if feature.is_bag and feature.ngrams > 1:
        parts = [join_tokens(tokens, feature.ngrams, SEPARATORS[feature.tokens])]
    if feature.has_characters:
        most = feature.character_terms_in_row
        parts.append(cut_words(tokens, feature.character_ngrams, most))
    return parts


@tf.function(autograph=False)
def find_tokens(texts: tf.Tensor, tokens: str, lower: bool, length: int) -> tf.RaggedTensor:
    """Returns the tokens of each text, [batch, (tokens)].

    This function and the functions below are tf.functions for the same reason as `_replace`.

    Args:
      texts: [batch] strings.
      tokens: the name of the tokenizer.
      lower: whether to convert to lower case.
      length: the maximum number of tokens; longer texts are truncated.
    """
    return TOKENIZERS[tokens](normalize(texts, lower), length)


@tf.function(autograph=False)
def join_tokens(tokens: tf.RaggedTensor, longest: int, separator: str) -> tf.RaggedTensor:
    """Returns the n-grams of 1 to `longest` tokens of each text, [batch, (n-grams)]."""
    return tf.strings.ngrams(tokens, [*range(1, longest + 1)], separator=separator)


@tf.function(autograph=False)
def cut_words(words: tf.RaggedTensor, longest: int, most: int) -> tf.RaggedTensor:
    """Returns the n-grams of the characters of each text's words, [batch, (n-grams)].

    An n-gram is within a word; a space marks the beginning and the end of the word, as in
    scikit-learn's `analyzer="char_wb"`.

    Args:
      words: the words of each text, [batch, (words)].
      longest: the maximum number of characters in an n-gram.
      most: the number of n-grams per text; later n-grams are dropped.
    """
    words = words.with_values(tf.strings.join([" ", words.flat_values, " "]))
    words = words.with_values(tf.strings.substr(words.flat_values, 0, most, "UTF8_CHAR"))
    # Later words of long texts would need much memory for n-grams that are dropped.
    counts = tf.strings.length(words.flat_values, "UTF8_CHAR") - (CHARACTERS[0] - 1)
    before = tf.cumsum(tf.cast(counts, tf.int64), exclusive=True)
    starts = tf.gather(tf.concat([before, [0]], 0), words.row_starts())
    is_needed = before - tf.gather(starts, words.value_rowids()) < most
    words = tf.ragged.boolean_mask(words, words.with_values(is_needed))
    letters = tf.strings.unicode_split(words.flat_values, "UTF-8")
    widths = [*range(CHARACTERS[0], longest + 1)]
    grams = tf.strings.ngrams(letters, widths, separator="")
    grams = grams.with_values(tf.strings.join([_WITHIN_WORD, grams.flat_values]))
    return words.with_values(grams).merge_dims(1, 2)[:, :most]


def _hash_terms(terms: tf.RaggedTensor, feature: TextFeature) -> tf.RaggedTensor:
    """Returns the terms, or if the feature has hash buckets, their indices as strings.

    The indices begin at 1.
    """
    if not feature.hash_buckets:
        return terms
    indices = tf.strings.to_hash_bucket_fast(terms.flat_values, feature.hash_buckets) + 1
    return terms.with_values(tf.strings.as_string(indices))


def _pad(terms: tf.RaggedTensor, feature: TextFeature) -> tf.Tensor:
    """Returns the tokens of a sequence, padded to [batch, max_tokens]."""
    return terms.to_tensor(PADDING, shape=[None, feature.max_tokens])


@tf.function(autograph=False)
def _once_in_each_text(terms: tf.RaggedTensor) -> tf.Tensor:
    """Returns the different terms of all rows, [n], and additionally `TEXTS` per nonempty row.

    A term that occurs several times in a row is returned once for the row.
    """
    rows = terms.value_rowids()
    keys = tf.strings.join([tf.strings.as_string(rows), terms.flat_values], TEXTS)
    unique_keys, indices = tf.unique(keys)
    first = tf.math.unsorted_segment_min(tf.range(tf.size(keys)), indices, tf.size(unique_keys))
    texts = tf.size(tf.unique(rows)[0])
    return tf.concat([tf.gather(terms.flat_values, first), tf.fill([texts], TEXTS)], 0)


@tf.function(autograph=False)
def _weigh(indices: tf.RaggedTensor, rarity: tf.Tensor, width: int) -> tf.Tensor:
    """Returns the index and the TF-IDF of each term of one kind, [batch, width, 2].

    The TF-IDF values of a row have the L2 norm 1.

    Args:
      indices: the indices of the terms, [batch, (terms)], or 0 for a term that is not in the
        vocabulary.
      rarity: the inverse document frequencies by index.
      width: the maximum number of different terms of a row.
    """
    count = indices.nrows()
    in_vocabulary = tf.where(indices.flat_values > 0)[:, 0]
    rows = tf.gather(indices.value_rowids(), in_vocabulary)
    size = tf.size(rarity, tf.int64)
    keys = rows * size + tf.gather(indices.flat_values, in_vocabulary)
    unique_keys, _, frequencies = tf.unique_with_counts(keys)
    rows, terms = unique_keys // size, unique_keys % size
    weights = (1 + tf.math.log(tf.cast(frequencies, tf.float32))) * tf.gather(rarity, terms)
    norms = tf.sqrt(tf.math.unsorted_segment_sum(tf.square(weights), rows, count))
    pairs = tf.stack([tf.cast(terms, tf.float32), weights / tf.gather(norms, rows)], 1)
    ragged = tf.RaggedTensor.from_value_rowids(pairs, rows, count, validate=False)
    return ragged.to_tensor(0.0, shape=[None, width, 2])
