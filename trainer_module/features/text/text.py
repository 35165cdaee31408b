"""The feature type of text: a sequence of tokens, or a bag of n-grams with their TF-IDF."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, PositiveInt, model_validator

from trainer_module.features.base import BaseFeature

if TYPE_CHECKING:
    import tensorflow as tf

    from trainer_module.features.raw_columns import AnyTensor
    from trainer_module.features.transformed import TransformedFeature

FEWEST_PIECES = 3
"""The fewest pieces of a text: the first, the last and one of the text."""
FEWEST_IN_VOCABULARY = 7
"""The smallest vocabulary: the special pieces, a piece that begins a word and one inside a word."""
MOST_INDICES = 2**24 - 1
"""The largest index of a term, as float32 represents whole numbers exactly up to it."""
WIDER = 4
"""The factor by which the vector of a text is longer than the vector of a category."""


class TextFeature(BaseFeature):
    """Text that is normalised (NFKC), split into tokens, and looked up in a vocabulary."""

    type: Literal["text"]
    may_mix: ClassVar[bool] = True
    dtype: ClassVar[str] = "int64"
    tokens: Literal["words", "characters", "wordpiece"] = "words"
    """The kind of tokens; `characters` suit languages without spaces."""
    lower: bool | None = None
    """Whether text is converted to lower case; default: true, or as in the `vocabulary`."""
    max_tokens: PositiveInt = 128
    """The most tokens per text; longer texts are truncated. If the type was inferred, the length of
    nearly all texts."""
    encoding: Literal["sequence", "bag"] | None = None
    """The encoding: the tokens as a `sequence`, or the TF-IDF of the n-grams as a `bag`; default:
    depends on the model."""
    ngrams: PositiveInt = Field(default=2, le=5)
    """The longest n-grams of a bag, in tokens."""
    vocabulary_size: PositiveInt = Field(default=20_000, le=MOST_INDICES)
    """The most tokens or terms in the vocabulary; the ones that occur in the most texts are kept.
    """
    vocabulary: str | None = None
    """wordpiece: a folder with a `vocab.txt`, a piece per line, such as Hugging Face's; default:
    the vocabulary of `model.weights`, or one learnt from the train split."""
    hash_buckets: PositiveInt | None = Field(default=None, le=MOST_INDICES)
    """The number of hash buckets of the tokens or terms, in place of a vocabulary."""

    @model_validator(mode="after")
    def _agrees(self) -> TextFeature:
        if self.tokens == "wordpiece" and self.encoding == "bag":
            raise ValueError("tokens: wordpiece needs encoding: sequence")
        if self.tokens == "wordpiece" and self.hash_buckets:
            raise ValueError("hash_buckets: wordpiece uses a vocabulary; remove this key")
        if self.tokens == "wordpiece" and self.max_tokens < FEWEST_PIECES:
            raise ValueError(
                f"max_tokens: found {self.max_tokens}; wordpiece needs {FEWEST_PIECES}, as "
                "the first and the last token mark the ends"
            )
        if self.tokens == "wordpiece" and self.vocabulary_size < FEWEST_IN_VOCABULARY:
            raise ValueError(
                f"vocabulary_size: found {self.vocabulary_size}; wordpiece needs "
                f"{FEWEST_IN_VOCABULARY}, as 5 are special tokens"
            )
        if self.vocabulary and self.tokens != "wordpiece":
            raise ValueError("vocabulary: it needs tokens: wordpiece")
        return self

    @property
    def is_bag(self) -> bool:
        """Whether the encoding is a bag, without the order of the tokens."""
        return self.encoding != "sequence" and self.tokens != "wordpiece"

    @property
    def indices_of(self) -> str:
        """A description of the indices: a hash, if there is one."""
        return f"hash of {self.tokens}" if self.hash_buckets else ""

    @property
    def reading(self) -> tuple[str, bool, int, int]:
        """The arguments of `transform.find_terms`."""
        lower = self.lower is not False
        return self.tokens, lower, self.max_tokens, self.ngrams if self.is_bag else 1

    @property
    def terms_in_row(self) -> int:
        """The most different n-grams in a row."""
        return sum(max(self.max_tokens - n, 0) for n in range(self.ngrams))

    @classmethod
    def transform(
        cls, columns: Mapping[str, AnyTensor], features: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """Returns the indices, [batch, max_tokens] int64 each, padded with 0; bags [batch, terms,
        2] float32.

        A term of a bag is its index and its TF-IDF; unused terms of a row are 0.

        Raises:
          DataError: a column holds numbers, or has no token in the train split.
        """
        from trainer_module.features.text.transform import transform_texts

        return transform_texts(columns, features)

    @classmethod
    def matches(cls, dtype: str, shape: tuple[int, ...], indices: int) -> bool:
        """Returns whether a tensor holds sequences of indices, or pairs of an index and a
        weight.
        """
        if dtype == "float32":
            return len(shape) == 2 and shape[1] == 2
        return dtype == cls.dtype and len(shape) == 1 and indices > 0

    @classmethod
    def encode(
        cls, feature: TransformedFeature, values: tf.Tensor, embedding_size: int
    ) -> tf.Tensor:
        """Returns the mean of the tokens' vectors, or the weighted sum of the terms': [batch, size]
        float32.
        """
        from trainer_module.features.text.layers import WeightedSum, mean_of_tokens, sum_of_terms

        size = WIDER * embedding_size
        if not feature.is_bag:
            return mean_of_tokens(feature, values, size, "embedding")
        scale = WeightedSum.SCALE_FOR_ADAM
        return sum_of_terms(feature, values, size, "embedding", scale=scale)
