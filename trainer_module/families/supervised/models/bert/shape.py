"""What fixes the weights of a BERT, whoever has trained them."""

from __future__ import annotations

from dataclasses import dataclass

from trainer_module.settings.model import BertSizes


@dataclass(frozen=True)
class BertShape:
    """Sizes and constants, as Hugging Face's config.json has them."""

    vocabulary: int
    """Pieces that have a vector."""
    layers: int
    hidden: int
    heads: int
    feed_forward: int
    """Units between the two dense layers of each block."""
    positions: int
    """The most tokens that can be read at once."""
    token_types: int = 2
    epsilon: float = 1e-12
    """Of the normalisations."""

    @classmethod
    def of_sizes(cls, sizes: BertSizes, vocabulary: int) -> BertShape:
        """One that nobody has trained yet."""
        feed_forward = 4 * sizes.hidden
        return cls(
            vocabulary, sizes.layers, sizes.hidden, sizes.heads, feed_forward, sizes.max_tokens
        )

    def is_of(self, sizes: BertSizes) -> bool:
        """Whether these are the sizes that a config asks for."""
        return (self.layers, self.hidden, self.heads) == (sizes.layers, sizes.hidden, sizes.heads)

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the weights by Hugging Face's names; matrices are [outputs, inputs]."""
        hidden, between = self.hidden, self.feed_forward
        shapes: dict[str, tuple[int, ...]] = {
            "embeddings.word_embeddings.weight": (self.vocabulary, hidden),
            "embeddings.position_embeddings.weight": (self.positions, hidden),
            "embeddings.token_type_embeddings.weight": (self.token_types, hidden),
            **_norm("embeddings.LayerNorm", hidden),
        }
        for layer in range(self.layers):
            block = f"encoder.layer.{layer}"
            for part in ("query", "key", "value"):
                shapes |= _dense(f"{block}.attention.self.{part}", hidden, hidden)
            shapes |= _dense(f"{block}.attention.output.dense", hidden, hidden)
            shapes |= _norm(f"{block}.attention.output.LayerNorm", hidden)
            shapes |= _dense(f"{block}.intermediate.dense", between, hidden)
            shapes |= _dense(f"{block}.output.dense", hidden, between)
            shapes |= _norm(f"{block}.output.LayerNorm", hidden)
        return shapes

    def pooler(self) -> dict[str, tuple[int, ...]]:
        """Likewise of the layer that the first token goes through, which not all models have."""
        return _dense("pooler.dense", self.hidden, self.hidden)


def _dense(name: str, outputs: int, inputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _norm(name: str, size: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (size,), f"{name}.bias": (size,)}
