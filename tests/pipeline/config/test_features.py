"""What a config may say of columns, before TensorFlow is imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.config.loading import load_config
from pipeline.config.settings import PipelineConfig
from trainer_module.errors import ConfigError

TAXI = Path(__file__).parents[3] / "configs" / "taxi.yaml"


def load(**features: dict[str, Any]) -> PipelineConfig:
    return load_config(TAXI, [f"features={features}"])


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        ({"type": "numeric", "clip": [5, 5]}, "the lowest value (5) must be less than"),
        ({"type": "numeric", "clip": [5]}, "clip: found"),
        ({"type": "numeric", "buckets": 4, "fill": "zero"}, "remove scaling and fill"),
        ({"type": "numeric", "scaling": "zscore"}, "did you mean `z_score`?"),
        ({"type": "categorical", "separator": ";"}, "a row has one value; add many: true"),
        ({"type": "categorical", "many": True, "words": 9}, "a row has one value; remove many"),
        ({"type": "text", "character_ngrams": 2}, "found 2; expected 3 to 5, or 0 for none"),
        ({"type": "date", "format": "%d/%q"}, "'%q' is not a part of a date; a format consists of"),
        ({"type": "cross", "of": ["fare"]}, "of: found ['fare']"),
        ({"type": "cross", "of": ["fare", "big_tipper"]}, "the feature reads the label 'big_tip"),
        ({"type": "sequence"}, "length: this key is missing"),
        ({"type": "text", "max_tokens": 0}, "max_tokens: found 0; expected a number greater"),
        ({"type": "text", "tokens": "word"}, "did you mean `words`?"),
        ({"type": "text", "tokens": "wordpiece", "encoding": "bag"}, "wordpiece needs encoding"),
        ({"type": "my.Money!"}, "the type of an own class is module.Class, such as my_types.Money"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be(feature: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(some=feature)
    assert message in str(caught.value)


def test_a_cross_names_the_columns_that_it_is_of() -> None:
    config = load(pair={"type": "cross", "of": ["fare", "company"]}, company={"type": "ignore"})
    assert {"fare", "company"} < set(config.named_columns.values())
    assert "pair" not in config.named_columns.values()
    settings = config.trainer_settings
    assert settings.is_requested("company"), "the cross needs it"
    assert not load(company={"type": "ignore"}).trainer_settings.is_requested("company")


def test_a_date_needs_the_column_of_its_reference() -> None:
    config = load(end={"type": "date", "reference": "start"})
    assert set(config.named_columns.values()) >= {"start", "end"}
