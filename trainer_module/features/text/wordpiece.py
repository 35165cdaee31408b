"""BERT's tokenization: splits text into words, and words into pieces of a vocabulary (WordPiece).

Text is split into words as by BERT's own code (https://github.com/google-research/bert,
tokenization.py): without control characters, optionally without accents and in lower case, and with
a space around each punctuation mark and each Chinese character. Words are split into pieces by an
operation of tensorflow-text, which TensorFlow Serving also has. `tensorflow_text.BertTokenizer` is
not used, as it finds other words: it replaces control characters with spaces, and limits the length
of words in bytes.
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
"""A pattern of control, format and private-use characters, and of the replacement character."""
ACCENTS = r"\p{Mn}"
CHINESE = (
    r"\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}"
    r"\x{2B820}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}"
)
ALONE = rf"([\p{{P}}$+<=>^`|~{CHINESE}])"
"""A pattern of a character that is a word of its own."""

BYTES_OF_CHARACTER = 4
"""The maximum number of bytes of a character in UTF-8."""


def cut_texts(
    texts: Mapping[str, tf.Tensor], features: Mapping[str, TextFeature]
) -> dict[str, tf.Tensor]:
    """Returns the indices of the pieces, [batch, max_tokens] int64 each, padded with 0.

    All columns share one vocabulary, so that a model can share layers between columns. The
    vocabulary has the name of the first column.

    Args:
      texts: the columns by name, [batch] strings each; a missing text is an empty string.
      features: the settings of the columns by name.

    Raises:
      DataError: a vocabulary cannot be read, or the columns have different vocabularies.
    """
    published = _read_published({name: features[name] for name in texts})
    default_lower = published.lower if published else True
    words = {
        name: split_words(text, default_lower if (lower := features[name].lower) is None else lower)
        for name, text in texts.items()
    }
    all_words = tf.concat([column.flat_values for column in words.values()], 0)
    size = max(features[name].vocabulary_size for name in texts)
    order = published or LearntPieces(size, enumerate_names(map(repr, words), "and"))
    first = next(iter(words))
    paths = vocabularies.compute_vocabularies(
        {first: all_words[:0] if published else all_words}, {first: order}
    )
    return {
        name: tft.apply_vocabulary(
            texts[name],
            paths[first],
            lookup_fn=lambda _, path, name=name: split_into_pieces(
                words[name], path, features[name].max_tokens
            ),
        )
        for name in words
    }


def _read_published(features: Mapping[str, TextFeature]) -> GivenPieces | None:
    """Returns the published vocabulary of the columns, or None if a vocabulary is to be learned."""
    folders = {feature.vocabulary: name for name, feature in features.items()}
    if len(folders) > 1:
        name, other = list(folders.values())[:2]
        raise DataError(
            f"features: {name!r} and {other!r} have different vocabularies; set the same "
            f"vocabulary for the two columns, or remove vocabulary from {name!r} and {other!r}."
        )
    folder = next(iter(folders))
    return read_pieces(folder) if folder else None


def split_words(texts: tf.Tensor, lower: bool) -> tf.RaggedTensor:
    """Returns the words of each text, [batch, (words)] string.

    Args:
      texts: [batch] strings.
      lower: whether to convert text to lower case and remove accents.
    """
    texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
    texts = tf.strings.regex_replace(texts, SPACES, " ")
    texts = tf.strings.regex_replace(texts, INVISIBLE, "")
    if lower:
        texts = tf.strings.regex_replace(tf_text.normalize_utf8(texts, "NFD"), ACCENTS, "")
        # TensorFlow has another lower-case sigma at the end of a word, which BERT does not use.
        texts = tf.strings.regex_replace(texts, "Σ", "σ")  # noqa: RUF001
        texts = tf.strings.lower(texts, encoding="utf-8")
    return tf.strings.split(tf.strings.regex_replace(texts, ALONE, r" \1 "))


def split_into_pieces(
    words: tf.RaggedTensor, file: tf.Tensor, max_tokens: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Splits words into pieces.

    Args:
      words: [batch, (words)] string.
      file: the path of a vocabulary with a piece per line.
      max_tokens: the length of a row of indices.

    Returns:
      The indices of the first token, the pieces and the last token, [batch, max_tokens] int64; and
      the number of pieces in the vocabulary.
    """
    table = _read_table(file)
    length = max(max_tokens - 2, 0)
    words = words[:, :length]  # Each word has at least one piece.
    is_long = tf.strings.length(words.flat_values, "UTF8_CHAR") > LONGEST_WORD
    words = words.with_flat_values(tf.where(is_long, UNKNOWN, words.flat_values))
    tokenizer = tf_text.WordpieceTokenizer(
        table, max_bytes_per_word=BYTES_OF_CHARACTER * LONGEST_WORD
    )
    pieces = tokenizer.tokenize(words).merge_dims(1, 2)[:, :length]
    first, last = (
        tf.fill([pieces.nrows(), 1], table.lookup(tf.constant(token))) for token in (FIRST, LAST)
    )
    tokens = tf.concat([first, pieces, last], 1)
    return tokens.to_tensor(shape=[None, max_tokens]), table.size()


def _read_table(file: tf.Tensor) -> tf.lookup.StaticHashTable:
    """Returns a lookup table from pieces to their indices."""
    index = tf.lookup.TextFileIndex
    # In the serving graph the path is a constant; init_scope then reads the table once, not in
    # every call.
    with tf.init_scope() if tf.inside_function() and hasattr(file, "numpy") else nullcontext():
        initializer = tf.lookup.TextFileInitializer(
            file, tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER
        )
        return tf.lookup.StaticHashTable(initializer, -1)
