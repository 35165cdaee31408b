"""The model card: both forms, what is missing, and texts that are not what they seem."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import jsonschema
import yaml

from pipeline.config.settings import PipelineConfig
from pipeline.records.summary import MetricSummary, RunSummary
from pipeline.report.model_card import CardSource, card_as_json
from pipeline.report.model_card_markdown import card_as_markdown
from trainer_module.export.interface import ModelInterface, RawColumn

HOSTILE = 'a | <script>alert(1)</script> "\n---\n# \u202eevil\x1b[31m `x` [link](javascript:1) : {'


def _object(**fields: Any) -> dict[str, Any]:
    """Returns the schema of an object with no other fields."""
    return {"type": "object", "properties": fields, "additionalProperties": False}


def _list(**fields: Any) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": _object(**fields)}


TEXT = {"type": "string"}
LICENCE = _list(identifier=TEXT, custom_text=TEXT)
LICENCE["items"]["oneOf"] = [{"required": ["identifier"]}, {"required": ["custom_text"]}]
SCHEMA = _object(
    schema_version=TEXT,
    model_details=_object(
        name=TEXT,
        overview=TEXT,
        documentation=TEXT,
        owners=_list(name=TEXT, contact=TEXT),
        version=_object(name=TEXT, date=TEXT | {"format": "date"}, diff=TEXT),
        licenses=LICENCE,
        references=_list(reference=TEXT | {"format": "uri"}),
    ),
    model_parameters=_object(
        model_architecture=TEXT,
        data=_list(name=TEXT, description=TEXT),
        input_format=TEXT,
        input_format_map=_list(key=TEXT, value=TEXT),
        output_format=TEXT,
    ),
    quantitative_analysis=_object(
        performance_metrics=_list(
            type=TEXT,
            value=TEXT,
            slice=TEXT,
            confidence_interval=_object(lower_bound=TEXT, upper_bound=TEXT),
        )
    ),
    considerations=_object(
        users=_list(description=TEXT),
        use_cases=_list(description=TEXT),
        limitations=_list(description=TEXT),
        tradeoffs=_list(description=TEXT),
        ethical_considerations=_list(name=TEXT, mitigation_strategy=TEXT),
    ),
)
"""The fields of model-card-toolkit's schema v0.0.2 that cards use."""


def config_of(card: Any, **sections: Any) -> PipelineConfig:
    data = {"format": "csv", "path": "nowhere.csv"}
    raw = {"name": "cars", "data": data, "task": "binary", "card": card, **sections}
    return PipelineConfig.model_validate(raw)


def source_of(card: Any, columns: list[str], **fields: Any) -> CardSource:
    summary = RunSummary(
        run_id="2026-01-05T03-00-00.000000",
        pipeline="cars",
        started="2026-01-05T03:00:00+00:00",
        strategy="default",
        **{"examples": {"train": 800, "eval": 200}} | fields,
    )
    raw = tuple(RawColumn(name, f"c{i}", "float32", False, 1) for i, name in enumerate(columns))
    interface, trained = (
        ModelInterface(raw, classes=("no", "yes")),
        datetime(2025, 12, 31, tzinfo=UTC),
    )
    return CardSource(config_of(card), summary, interface, 1500, trained)


def read_card(source: CardSource) -> dict[str, Any]:
    card = json.loads(card_as_json(source))
    jsonschema.validate(card, SCHEMA, format_checker=jsonschema.FormatChecker())
    return dict(card)


def read_front(source: CardSource) -> tuple[dict[str, Any], str]:
    """Returns the front matter as the hub reads it, and the text below."""
    _, front, text = card_as_markdown(source).split("---\n", 2)
    return dict(yaml.safe_load(front)), text


def test_card_has_the_run_and_lists_missing_parts() -> None:
    metrics = {
        "auc": MetricSummary(
            value=0.8125, in_service=0.8, needs="at least 0.7", ok=True, interval=(0.75, 0.875)
        ),
        "recall": MetricSummary(value=math.nan, in_service=None, needs="", ok=True),
    }
    slices = {"plan=gold": {"example_count": 90.0, "auc": 0.5}}
    source = source_of({"owner": "Fleet team"}, ["price"], metrics=metrics, slices=slices)
    card, (front, text) = read_card(source), read_front(source)

    assert card["model_details"]["owners"] == [{"name": "Fleet team"}]
    assert "licenses" not in card["model_details"]
    assert card["model_parameters"]["data"][1] == {
        "name": "eval",
        "description": "200 rows, 1 column",
    }
    assert card["quantitative_analysis"]["performance_metrics"] == [
        {
            "type": "auc",
            "value": "0.8125",
            "confidence_interval": {"lower_bound": "0.75", "upper_bound": "0.875"},
        },
        {"type": "recall", "value": "undefined"},
        {"type": "example_count", "value": "90", "slice": "plan=gold"},
        {"type": "auc", "value": "0.5", "slice": "plan=gold"},
    ]
    assert (front["pipeline_tag"], front["metrics"]) == ("tabular-classification", ["auc"])
    (result,) = front["model-index"][0]["results"]
    assert result["metrics"] == [{"type": "auc", "value": 0.8125, "name": "auc"}]
    assert "license" not in front
    assert "Trained: 2025-12-31" in card["model_details"]["documentation"]
    assert "| auc | 0.8125 | 0.75 to 0.875 | 0.8 | at least 0.7 |" in text
    missing = text.split("## Missing\n")[1]
    assert "- card.licence in the config\n" in missing
    assert "- the confidence intervals of recall\n" in missing
    assert "card.owner" not in missing
    assert "by slice" not in missing


def test_hostile_texts_stay_text_in_both_forms() -> None:
    keys = ("overview", "owner", "contact", "licence", "users", "intended_use", "limits")
    card = dict.fromkeys(keys, HOSTILE) | {"risks": {HOSTILE: HOSTILE}}
    card["references"] = ["https://example.org/><script>"]
    metrics = {HOSTILE: MetricSummary(value=1.0, in_service=None, needs=HOSTILE, ok=True)}
    source = source_of(card, [HOSTILE], metrics=metrics, slices={HOSTILE: {HOSTILE: 1.0}})
    assert read_card(source)["model_details"]["overview"] == HOSTILE
    front, text = read_front(source)
    assert front["metrics"] == [HOSTILE]
    assert "<script>" not in text
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert "[link](" not in text.replace("\\[", "")
    assert not [line for line in text.splitlines() if line.startswith(("---", "# evil"))]
    table = text.split("## Columns\n\n")[1].splitlines()
    assert table[2].replace("\\|", "").count("|") == 3


def test_card_changes_neither_fingerprint_nor_settings_of_the_model() -> None:
    plain, described = config_of({}), config_of({"owner": "Fleet team", "limits": "no lorries"})
    assert described.card.limits == ["no lorries"]
    assert described.fingerprint == plain.fingerprint
    assert described.trainer_settings == plain.trainer_settings
