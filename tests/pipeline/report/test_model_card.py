"""The model card: both forms, what is missing, and texts that are not what they seem."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from pipeline.config.loading import load_config
from pipeline.config.settings import PipelineConfig
from pipeline.records.summary import MetricSummary, RunSummary
from pipeline.report.model_card import MAX_COLUMNS, CardSource, card_as_json
from pipeline.report.model_card_markdown import card_as_markdown
from trainer_module.errors import ConfigError
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


def test_card_has_the_run_and_lists_what_is_missing() -> None:
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


@pytest.mark.parametrize(
    ("licence", "in_json", "in_front"),
    [
        ("apache-2.0", {"identifier": "Apache-2.0"}, {"license": "apache-2.0"}),
        ("GPL-3.0-only", {"identifier": "GPL-3.0-only"}, {"license": "gpl-3.0"}),
        ("0BSD", {"identifier": "0BSD"}, {"license": "other", "license_name": "0BSD"}),
        (
            "Ask us first",
            {"custom_text": "Ask us first"},
            {"license": "other", "license_name": "Ask us first"},
        ),
    ],
)
def test_licence_has_the_identifier_of_each_form(
    licence: str, in_json: dict[str, str], in_front: dict[str, str]
) -> None:
    source = source_of({"licence": licence}, [])
    assert read_card(source)["model_details"]["licenses"] == [in_json]
    assert in_front.items() <= read_front(source)[0].items()


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


def test_columns_are_capped_and_counted() -> None:
    source = source_of({}, [f"c{i}" for i in range(5000)])
    fields = read_card(source)["model_parameters"]
    assert len(fields["input_format_map"]) == MAX_COLUMNS
    assert fields["input_format"] == "5,000 columns, of which 4,500 are not listed"
    assert "4,500 further columns are not listed." in card_as_markdown(source)


def test_config_without_intervals_has_a_card() -> None:
    metrics = {"auc": MetricSummary(value=0.75, in_service=None, needs="", ok=True)}
    source = source_of({}, [], metrics=metrics)
    without = config_of({}, evaluate={"confidence": None})
    assert "| auc | 0.75 |  |" in card_as_markdown(replace(source, config=without))


def test_slices_of_private_columns_are_left_out() -> None:
    slices = {"born=1970, plan=gold": {"auc": 0.5}, "plan=tin": {"auc": 0.6}}
    notes = ["auc is undefined on born=1970, plan=gold and plan=tin"]
    source = source_of({}, [], slices=slices, metrics={}, notes=notes)
    source = replace(source, config=config_of({}, report={"private": ["born"]}))
    for card in (card_as_json(source), card_as_markdown(source)):
        assert "1970" not in card
    assert "plan=tin" in card_as_json(source)
    assert "auc is undefined on a slice of a private column and plan=tin" in card


def test_card_changes_neither_fingerprint_nor_settings_of_the_model() -> None:
    plain, described = config_of({}), config_of({"owner": "Fleet team", "limits": "no lorries"})
    assert described.card.limits == ["no lorries"]
    assert described.fingerprint == plain.fingerprint
    assert described.trainer_settings == plain.trainer_settings


def test_unknown_key_of_a_card_is_refused_with_the_closest(tmp_path: Path) -> None:
    path = tmp_path / "cars.yaml"
    path.write_text(
        "name: cars\ndata: {format: csv, path: a.csv}\ntask: binary\n"
        "card: {ownr: me, references: [my notes]}\n"
    )
    with pytest.raises(ConfigError, match=r"(?s)https://example\.org/paper.*card\.ownr.*`owner`"):
        load_config(path)
