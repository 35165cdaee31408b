"""BERT's tokenization of text: words, cut into pieces of a vocabulary (WordPiece).

The words are those of BERT's own code (https://github.com/google-research/bert, tokenization.py):
clean text, optionally without accents and in lower case, with a space around each punctuation mark
and each Chinese character. An operation of tensorflow-text, which TensorFlow Serving has too, cuts
them into pieces; `tensorflow_text.BertTokenizer` finds other words: it replaces control characters
with spaces, and limits a long word by its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING

import tensorflow as tf
import tensorflow_text as tf_text
import tensorflow_transform as tft

from trainer_module.errors import DataError, enumerate_names
from trainer_module.features import vocabularies
from trainer_module.features.text.pieces import (
    FIRST,
    LAST,
    LONGEST_WORD,
    UNKNOWN,
    GivenPieces,
    LearntPieces,
    read_pieces,
)

if TYPE_CHECKING:
    from trainer_module.features.text.text import TextFeature

SPACES = r"[\t\n\r\p{Z}]"
INVISIBLE = r"[\p{Cc}\p{Cf}\p{Co}\x{FFFD}]"
"""Control, format and private-use characters, and the replacement of bytes that are not UTF-8."""
ACCENTS = r"\p{Mn}"
CHINESE = (
    r"\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}"
    r"\x{2B820}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}"
)
ALONE = rf"([\p{{P}}$+<=>^`|~{CHINESE}])"
"""A pattern of a character that is a word of its own."""

BYTES_OF_CHARACTER = 4
"""The most bytes of a character in UTF-8."""


def cut_texts(
    texts: Mapping[str, tf.Tensor], features: Mapping[str, TextFeature]
) -> dict[str, tf.Tensor]:
    """Returns the indices of the pieces, [batch, max_tokens] int64 each; 0 is padding.

    All columns share one vocabulary, as a model's layers may be shared too; it has the name of the
    first column.

    Args:
      texts: [batch] string by name, raw; empty where missing.
      features: their settings, by the same names.

    Raises:
      DataError: a vocabulary cannot be read, or the columns name several.
    """
    given = _given({name: features[name] for name in texts})
    usual = given.lower if given else True
    words = {
        name: split_words(text, usual if (lower := features[name].lower) is None else lower)
        for name, text in texts.items()
    }
    counted = tf.concat([column.flat_values for column in words.values()], 0)
    size = max(features[name].vocabulary_size for name in texts)
    order = given or LearntPieces(size, enumerate_names(map(repr, words), "and"))
    first = next(iter(words))
    paths = vocabularies.compute_vocabularies(
        {first: counted[:0] if given else counted}, {first: order}
    )
    return {
        name: tft.apply_vocabulary(
            texts[name],
            paths[first],
            lookup_fn=lambda _, path, name=name: cut(words[name], path, features[name].max_tokens),
        )
        for name in words
    }


def _given(features: Mapping[str, TextFeature]) -> GivenPieces | None:
    """Returns the published vocabulary of the columns; None if there is none."""
    folders = {feature.vocabulary: name for name, feature in features.items()}
    if len(folders) > 1:
        name, other = list(folders.values())[:2]
        raise DataError(
            f"features: {name!r} and {other!r} have different vocabularies; set the same "
            "vocabulary for both, or none."
        )
    folder = next(iter(folders))
    return read_pieces(folder) if folder else None


def split_words(texts: tf.Tensor, lower: bool) -> tf.RaggedTensor:
    """Returns the words of each text, [batch, (words)] string, without empty ones."""
    texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
    texts = tf.strings.regex_replace(texts, SPACES, " ")
    texts = tf.strings.regex_replace(texts, INVISIBLE, "")
    if lower:
        texts = tf.strings.regex_replace(tf_text.normalize_utf8(texts, "NFD"), ACCENTS, "")
        # A sigma that ends a word has a small letter of its own, which BERT does not use.
        texts = tf.strings.regex_replace(texts, "Σ", "σ")  # noqa: RUF001
        texts = tf.strings.lower(texts, encoding="utf-8")
    return tf.strings.split(tf.strings.regex_replace(texts, ALONE, r" \1 "))


def cut(words: tf.RaggedTensor, file: tf.Tensor, max_tokens: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the indices of the pieces of words, with the first and the last token around them.

    Args:
      words: [batch, (words)] string.
      file: the path of a vocabulary, a piece in each line.
      max_tokens: the length of the result.

    Returns:
      [batch, max_tokens] int64, and the number of pieces in the vocabulary.
    """
    table = _read_table(file)
    length = max(max_tokens - 2, 0)
    words = words[:, :length]  # Each word has at least one piece.
    is_long = tf.strings.length(words.flat_values, "UTF8_CHAR") > LONGEST_WORD
    words = words.with_flat_values(tf.where(is_long, UNKNOWN, words.flat_values))
    cutter = tf_text.WordpieceTokenizer(table, max_bytes_per_word=BYTES_OF_CHARACTER * LONGEST_WORD)
    pieces = cutter.tokenize(words).merge_dims(1, 2)[:, :length]
    first, last = (
        tf.fill([pieces.nrows(), 1], table.lookup(tf.constant(token))) for token in (FIRST, LAST)
    )
    tokens = tf.concat([first, pieces, last], 1)
    return tokens.to_tensor(shape=[None, max_tokens]), table.size()


def _read_table(file: tf.Tensor) -> tf.lookup.StaticHashTable:
    """Returns a lookup table from pieces to their indices."""
    index = tf.lookup.TextFileIndex
    # With a constant path, in the serving graph, the table is read once, not in every call.
    with tf.init_scope() if tf.inside_function() and hasattr(file, "numpy") else nullcontext():
        initializer = tf.lookup.TextFileInitializer(
            file, tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER
        )
        return tf.lookup.StaticHashTable(initializer, -1)
