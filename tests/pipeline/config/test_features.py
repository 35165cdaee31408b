"""Settings of features are checked before TensorFlow is imported."""

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



        ({"type": "categorical", "separator": ";"}, "a row has one value; add many: true"),

        ({"type": "text", "character_ngrams": 2}, "found 2; expected 3 to 5, or 0 for none"),


        ({"type": "cross", "of": ["fare", "big_tipper"]}, "the feature reads the label 'big_tip"),





    ],
)  # fmt: skip
def test_invalid_feature_is_refused(feature: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(some=feature)
    assert message in str(caught.value)


def test_cross_needs_its_columns() -> None:
    config = load(pair={"type": "cross", "of": ["fare", "company"]}, company={"type": "ignore"})
    assert {"fare", "company"} < set(config.named_columns.values())
    assert "pair" not in config.named_columns.values()
    settings = config.trainer_settings
    assert settings.is_requested("company"), "the cross needs it"
    assert not load(company={"type": "ignore"}).trainer_settings.is_requested("company")


def test_date_needs_its_reference_column() -> None:
    config = load(end={"type": "date", "reference": "start"})
    assert set(config.named_columns.values()) >= {"start", "end"}
