"""How large a BERT is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, PositiveInt, model_validator

from trainer_module.sections import Settings


class BertSizes(Settings):
    """The sizes that fix a BERT's weights; the dense layers have 4 times `hidden` units between."""

    layers: PositiveInt = 2
    """Blocks of attention and dense layers."""
    hidden: PositiveInt = 128
    """Length of the vector of a token."""
    heads: PositiveInt = 2
    """Of the attention; they share `hidden` out among them."""
    max_tokens: PositiveInt = 512
    """The most tokens that can be read at once, of all text columns together."""

    @model_validator(mode="after")
    def _heads_share(self) -> BertSizes:
        if self.hidden % self.heads:
            raise ValueError(
                f"hidden is {self.hidden}, which {self.heads} heads cannot share out; use a "
                "multiple of heads"
            )
        return self


SIZES = {
    "tiny": BertSizes(layers=2, hidden=128, heads=2),
    "mini": BertSizes(layers=4, hidden=256, heads=4),
    "small": BertSizes(layers=4, hidden=512, heads=8),
    "base": BertSizes(layers=12, hidden=768, heads=12),
}
"""Those of Turc et al. (2019, arXiv:1908.08962) and of the paper."""


def _as_sizes(value: Any) -> Any:
    if value is None or isinstance(value, Mapping | BertSizes):
        return value
    if isinstance(value, str) and value in SIZES:
        return SIZES[value]
    raise ValueError(
        f"found {value!r}; use {', '.join(SIZES)}, or {{layers: 2, hidden: 128, heads: 2}}"
    )


AnyBertSizes = Annotated[
    BertSizes | None,
    BeforeValidator(
        _as_sizes,
        json_schema_input_type=Literal["tiny", "mini", "small", "base"] | BertSizes | None,
    ),
]
