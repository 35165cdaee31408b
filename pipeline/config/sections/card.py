"""The section `card`: the facts that only people know about a model, for its model card."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from trainer_module.sections import Matching
from trainer_module.settings import Settings

_TEXT_LENGTH = 10_000
_MAX_SENTENCES = 100

Text = Annotated[str, Field(min_length=1, max_length=_TEXT_LENGTH)]


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Sentences = Annotated[
    list[Text],
    Field(max_length=_MAX_SENTENCES),
    BeforeValidator(_as_list, json_schema_input_type=str | list[str]),
]
"""A list of sentences, or a single one."""
Url = Annotated[str, Matching(r"https?://\S+", "write a URL such as https://example.org/paper")]


class CardSettings(Settings):
    """The facts that only people know about the model, for its model card: docs/report.md.

    The card lists the missing keys. A change takes effect with the next pushed version.
    """

    overview: Text | None = None
    """A description of the model in one or two sentences."""
    owner: Text | None = None
    """The person or team that owns the model."""
    contact: Text | None = None
    """The owner's address, such as an e-mail address."""
    licence: Text | None = None
    """The licence: an SPDX identifier such as `Apache-2.0`, `proprietary`, or text of your own."""
    users: Sentences = []
    """The intended users; a sentence or a list."""
    intended_use: Sentences = []
    """The purposes that the model is meant for; a sentence or a list."""
    limits: Sentences = []
    """The purposes and data that the model is not meant for, and where it fails."""
    tradeoffs: Sentences = []
    """The disadvantages that the model accepts for its advantages, such as less accuracy for speed.
    """
    risks: dict[Text, Text] = Field(default={}, max_length=_MAX_SENTENCES)
    """The ethical and environmental risks, each with the measure taken against the risk."""
    references: list[Url] = Field(default=[], max_length=_MAX_SENTENCES)
    """The URLs of further information."""
