"""Text: its tokens in a row, or the n-grams of them with their TF-IDF."""

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
"""Those around a text, and one of it."""
FEWEST_IN_VOCABULARY = 7
"""Besides those that stand for no text, one that begins a word and one within."""
MOST_INDICES = 2**24 - 1
"""A term of a bag is a pair with its weight: float32 tells so many whole numbers apart."""
WIDER = 4
"""How much longer the vector of a text is than that of a category."""


class TextFeature(BaseFeature):
    """Sentences and more: normalised (NFKC), taken apart into tokens, and looked up."""

    type: Literal["text"]
    may_mix: ClassVar[bool] = True
    dtype: ClassVar[str] = "int64"
    tokens: Literal["words", "characters", "wordpiece"] = "words"
    """What a text is taken apart into; characters for languages without spaces."""
    lower: bool | None = None
    """Whether capital letters count as small ones; default: true, or as the `vocabulary` has it."""
    max_tokens: PositiveInt = 128
    """Of a longer text the first ones count; by default those of nearly all texts, if the column
    was found to be text."""
    encoding: Literal["sequence", "bag"] | None = None
    """The tokens in their order, or the TF-IDF of the n-grams; default: as the model has it."""
    ngrams: PositiveInt = Field(default=2, le=5)
    """In a bag: up to so many tokens in a row are a term."""
    vocabulary_size: PositiveInt = Field(default=20_000, le=MOST_INDICES)
    """At most so many tokens or terms, those of the most texts, get an index of their own."""
    vocabulary: str | None = None
    """wordpiece: a folder with a `vocab.txt` instead, a piece in each line, such as Hugging Face's;
    default: that of the `model.weights`, or learnt from the train split."""
    hash_buckets: PositiveInt | None = Field(default=None, le=MOST_INDICES)
    """Hashes them into this many indices instead, without a vocabulary."""

    @model_validator(mode="after")
    def _agrees(self) -> TextFeature:
        if self.tokens == "wordpiece" and self.encoding == "bag":
            raise ValueError("tokens: wordpiece is for encoding: sequence")
        if self.tokens == "wordpiece" and self.hash_buckets:
            raise ValueError("hash_buckets: wordpiece has a vocabulary")
        if self.tokens == "wordpiece" and self.max_tokens < FEWEST_PIECES:
            raise ValueError(
                f"max_tokens: found {self.max_tokens}; wordpiece needs {FEWEST_PIECES}, of which "
                "the first and the last stand for no text"
            )
        if self.tokens == "wordpiece" and self.vocabulary_size < FEWEST_IN_VOCABULARY:
            raise ValueError(
                f"vocabulary_size: found {self.vocabulary_size}; wordpiece needs "
                f"{FEWEST_IN_VOCABULARY}, of which 5 stand for no text"
            )
        if self.vocabulary and self.tokens != "wordpiece":
            raise ValueError("vocabulary: it is for tokens: wordpiece")
        return self

    @property
    def is_bag(self) -> bool:
        """Whether the order of the tokens is given up."""
        return self.encoding != "sequence" and self.tokens != "wordpiece"

    @property
    def indices_of(self) -> str:
        """Those of the hash, if there is one."""
        return f"hash of {self.tokens}" if self.hash_buckets else ""

    @property
    def reading(self) -> tuple[str, bool, int, int]:
        """What `transform.find_terms` has to know."""
        lower = self.lower is not False
        return self.tokens, lower, self.max_tokens, self.ngrams if self.is_bag else 1

    @property
    def terms_in_row(self) -> int:
        """Different n-grams that a row can have."""
        return sum(max(self.max_tokens - n, 0) for n in range(self.ngrams))

    @classmethod
    def transform(
        cls, columns: Mapping[str, AnyTensor], features: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """[batch, max_tokens] int64 each, 0 behind the end; of bags [batch, terms, 2] float32.

        A term of a bag is its index and its TF-IDF, which is 0 where a row has no more terms.

        Raises:
          DataError: a column holds numbers, or the train split no token.
        """
        from trainer_module.features.text.transform import transform_texts

        return transform_texts(columns, features)

    @classmethod
    def matches(cls, dtype: str, shape: tuple[int, ...], indices: int) -> bool:
        """Indices in a row, or pairs of an index and a weight."""
        if dtype == "float32":
            return len(shape) == 2 and shape[1] == 2
        return dtype == cls.dtype and len(shape) == 1 and indices > 0

    @classmethod
    def encode(
        cls, feature: TransformedFeature, values: tf.Tensor, embedding_size: int
    ) -> tf.Tensor:
        """[batch, size] float32: of the vectors of tokens their mean, of terms the weighted sum."""
        from trainer_module.features.text.layers import WeightedSum, mean_of_tokens, sum_of_terms

        size = WIDER * embedding_size
        if not feature.is_bag:
            return mean_of_tokens(feature, values, size, "embedding")
        scale = WeightedSum.SCALE_FOR_ADAM
        return sum_of_terms(feature, values, size, "embedding", scale=scale)
