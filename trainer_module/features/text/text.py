"""The feature type `text`: a sequence of tokens, or a bag of n-grams with their TF-IDF."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, PositiveInt, model_validator

from trainer_module.features.base import BaseFeature

if TYPE_CHECKING:
    import tensorflow as tf

    from trainer_module.features.raw_columns import AnyTensor
    from trainer_module.features.transformed import TransformedFeature

MIN_PIECES = 3
"""The minimum value of `max_tokens` for wordpiece: the first and the last token, and a piece."""
MIN_VOCABULARY_SIZE = 7
"""The minimum size of a wordpiece vocabulary: 5 special pieces, and 2 for the pieces of words."""
MAX_INDEX = 2**24 - 1
"""The maximum index of a term; float32 represents all whole numbers up to this maximum."""
CHARACTERS = range(3, 6)
"""The numbers of characters that an n-gram of characters may have."""
CHARACTER_TERMS, MAX_CHARACTER_TERMS = 8, 400
"""The maximum number of n-grams of characters in a text: per token of `max_tokens`, and in all.

Short texts need the n-grams of all their words; of long texts, the first words are enough."""
VECTOR_FACTOR = 4
"""The ratio of the length of a text's vector to `model.embedding_size`."""


class TextFeature(BaseFeature):
    """Text that is normalised (NFKC), split into tokens, and looked up in a vocabulary."""

    type: Literal["text"]
    may_mix: ClassVar[bool] = True
    dtype: ClassVar[str] = "int64"
    tokens: Literal["words", "characters", "wordpiece"] = "words"
    """The kind of tokens. Use `characters` for languages without spaces."""
    lower: bool | None = None
    """Whether text is converted to lower case. Default: true, or for a published `vocabulary` as in
    its `tokenizer_config.json`."""
    max_tokens: PositiveInt = 128
    """The maximum number of tokens per text; longer texts are truncated. If the type of the column
    is inferred, the default is the length of nearly all texts."""
    encoding: Literal["sequence", "bag"] | None = None
    """`sequence`: the tokens in their order. `bag`: the TF-IDF of the n-grams. Default: depends on
    the model."""
    ngrams: PositiveInt = Field(default=2, le=5)
    """The maximum number of tokens in an n-gram of a bag."""
    character_ngrams: int = Field(default=4, ge=0, le=CHARACTERS[-1])
    """The maximum number of characters in the n-grams within words that a bag of words has beside
    the n-grams of words, 3 to 5; 0 for none. They find the stems and the misspellings of words."""
    vocabulary_size: PositiveInt = Field(default=20_000, le=MAX_INDEX)
    """The maximum number of tokens or n-grams in the vocabulary, which keeps the terms that occur
    in the most texts. N-grams of characters have as many entries of their own."""
    vocabulary: str | None = None
    """wordpiece: a folder with a file `vocab.txt` that has a piece per line, as Hugging Face's
    models have. Default: the vocabulary of `model.weights`, or else a vocabulary that is learned
    from the train split."""
    hash_buckets: PositiveInt | None = Field(default=None, le=MAX_INDEX)
    """The number of hash buckets of the tokens or n-grams, which replace the vocabulary. Default: a
    vocabulary."""
    words: int = Field(default=0, ge=0, le=1000)
    """The number of frequent words, each with an input of its own: 1 if the text contains the word,
    else 0. Models that read no text, such as trees, read these inputs. Default: 64 where a run
    finds that the words of a text beside other columns help to predict the label, otherwise none.
    """

    @model_validator(mode="after")
    def _check_keys(self) -> TextFeature:
        if self.tokens == "wordpiece" and self.encoding == "bag":
            raise ValueError("tokens: wordpiece needs encoding: sequence, found encoding: bag")
        if self.tokens == "wordpiece" and self.hash_buckets:
            raise ValueError("hash_buckets: tokens: wordpiece uses a vocabulary; remove this key")
        if self.tokens == "wordpiece" and self.max_tokens < MIN_PIECES:
            raise ValueError(
                f"max_tokens: found {self.max_tokens}; wordpiece needs at least {MIN_PIECES}, as "
                "it adds a first and a last token to each text"
            )
        if self.tokens == "wordpiece" and self.vocabulary_size < MIN_VOCABULARY_SIZE:
            raise ValueError(
                f"vocabulary_size: found {self.vocabulary_size}; wordpiece needs at least "
                f"{MIN_VOCABULARY_SIZE}, as 5 tokens are special"
            )
        if 0 < self.character_ngrams < CHARACTERS[0]:
            raise ValueError(
                f"character_ngrams: found {self.character_ngrams}; expected {CHARACTERS[0]} to "
                f"{CHARACTERS[-1]}, or 0 for none"
            )
        if self.vocabulary and self.tokens != "wordpiece":
            raise ValueError("vocabulary: add tokens: wordpiece, or remove vocabulary")
        return self

    @property
    def is_bag(self) -> bool:
        """Whether the encoding is a bag, which has no order of tokens."""
        return self.encoding != "sequence" and self.tokens != "wordpiece"

    @property
    def has_characters(self) -> bool:
        """Whether a bag of words has n-grams of characters."""
        return self.is_bag and self.tokens == "words" and self.character_ngrams > 0

    @property
    def indices_of(self) -> str:
        """A description such as "hash of words" if the tokens are hashed, else an empty string."""
        if not self.hash_buckets:
            return ""
        return f"hash of {self.tokens}{' and characters' if self.has_characters else ''}"

    @property
    def reading(self) -> tuple[str, bool, int]:
        """The arguments of `transform.find_tokens` after the texts."""
        return self.tokens, self.lower is not False, self.max_tokens

    @property
    def terms_in_row(self) -> int:
        """The maximum number of different n-grams of tokens in a row."""
        return sum(max(self.max_tokens - n, 0) for n in range(self.ngrams))

    @property
    def character_terms_in_row(self) -> int:
        """The maximum number of n-grams of characters in a row, in all words together."""
        return min(CHARACTER_TERMS * self.max_tokens, MAX_CHARACTER_TERMS)

    @classmethod
    def transform(
        cls, columns: Mapping[str, AnyTensor], features: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """Returns the transformed texts.

        A sequence consists of indices, [batch, max_tokens] int64, padded with 0. A bag consists of
        pairs of an index and a TF-IDF, [batch, terms, 2] float32, padded with 0. For `words`, the
        result has an additional tensor, [batch, words] float32.

        Raises:
          DataError: a column holds numbers, or the column has no token in the train split.
        """
        from trainer_module.features.text.transform import transform_texts

        return transform_texts(columns, features)

    @classmethod
    def matches(cls, dtype: str, shape: tuple[int, ...], indices: int) -> bool:
        """Returns whether the shape and type of a tensor are those of a sequence or of a bag."""
        if dtype == "float32":
            return len(shape) == 2 and shape[1] == 2
        return dtype == cls.dtype and len(shape) == 1 and indices > 0

    @classmethod
    def encode(
        cls, feature: TransformedFeature, values: tf.Tensor, embedding_size: int
    ) -> tf.Tensor:
        """Returns the vector of a text, [batch, size] float32.

        It is the mean of the vectors of a sequence's tokens, or the sum of the vectors of a bag's
        n-grams, weighted by their TF-IDF.
        """
        from trainer_module.features.text.layers import WeightedSum, mean_of_tokens, sum_of_terms

        size = VECTOR_FACTOR * embedding_size
        if not feature.is_bag:
            return mean_of_tokens(feature, values, size, "embedding")
        scale = WeightedSum.SCALE_FOR_ADAM
        return sum_of_terms(feature, values, size, "embedding", scale=scale)
