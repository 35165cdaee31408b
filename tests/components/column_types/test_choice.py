"""Choices of column types in a schema: written, read, edited, and passed on."""

from __future__ import annotations

import pytest
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from components.column_types.choice import (
    Choice,
    annotate,
    read_choices,
    with_choices,
)
from trainer_module.errors import DataError
from trainer_module.features.date import DateFeature
from trainer_module.features.image import ImageFeature
from trainer_module.features.text.text import TextFeature
from trainer_module.settings import Task, TrainerSettings

DATE = Choice({"type": "date", "format": "%d/%m/%Y"}, "dates such as '31/01/2026'")
CHOICES = {
    "when": DATE,
    "id": Choice({"type": "ignore"}, "as an identifier has"),
    "side": Choice({"type": "categorical"}, "text of 2 values"),
}


def make_schema() -> schema_pb2.Schema:
    schema = schema_pb2.Schema()
    for name in ("when", "id", "side", "label"):
        schema.feature.add(name=name, type=schema_pb2.BYTES, domain=name)
        schema.string_domain.add(name=name, value=["a", "b"])
    return schema


@pytest.fixture
def schema() -> schema_pb2.Schema:
    schema = make_schema()
    annotate(schema, CHOICES)
    return schema


def edited(schema: schema_pb2.Schema, old: str, new: str) -> schema_pb2.Schema:
    """The schema after a person has edited its file."""
    text = text_format.MessageToString(schema)
    assert old in text
    return text_format.Parse(text.replace(old, new), schema_pb2.Schema())


def config(model: dict | None = None, **features: dict) -> dict:
    settings = {"label": "label", "task": Task.BINARY, "features": features, "model": model or {}}
    return TrainerSettings.model_validate(settings).to_custom_config()


def test_choices_survive_writing_and_reading(schema: schema_pb2.Schema) -> None:
    assert read_choices(schema) == CHOICES


def test_edited_annotation_is_used(schema: schema_pb2.Schema) -> None:
    tag = text_format.MessageToString(schema).splitlines()
    old = next(line for line in tag if "ignore" in line).strip()
    changed = edited(schema, old, """tag: '{"type": "categorical", "vocabulary_size": 9}'""")
    settings = {"type": "categorical", "vocabulary_size": 9}
    assert read_choices(changed)["id"].settings == settings
    assert with_choices(config(), changed)["scopeline"]["features"]["id"] == settings


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ("""tag: '{"type": "ignored"}'""", "'ignored'"),
        ("""tag: '{"type": ignore}'""", "JSON"),
        ("""tag: '{"type": "categorical", "size": 9}'""", "size"),
    ],
)
def test_invalid_annotation_is_refused(schema: schema_pb2.Schema, new: str, message: str) -> None:
    lines = text_format.MessageToString(schema).splitlines()
    old = next(line for line in lines if "ignore" in line).strip()
    with pytest.raises(DataError, match=r"^data/schema\.pbtxt: ") as error:
        read_choices(edited(schema, old, new), "data/schema.pbtxt")
    assert message in str(error.value)


def test_the_config_wins_over_choices(schema: schema_pb2.Schema) -> None:
    settings = TrainerSettings.from_custom_config(
        with_choices(config(id={"type": "categorical"}), schema)
    )
    assert {name: f.type for name, f in settings.features.items()} == {
        "when": "date",
        "id": "categorical",
        "side": "categorical",
    }
    when = settings.features["when"]
    assert isinstance(when, DateFeature)
    assert when.format == "%d/%m/%Y"


@pytest.mark.parametrize(("kind", "tokens"), [("bert", "wordpiece"), ("text_cnn", "characters")])
def test_bert_reads_wordpieces(kind: str, tokens: str) -> None:
    schema = make_schema()
    found = {"type": "text", "tokens": "characters", "ngrams": 3, "max_tokens": 40}
    annotate(schema, {"side": Choice(found, "sentences without spaces between words")})
    settings = TrainerSettings.from_custom_config(with_choices(config({"kind": kind}), schema))
    side = settings.features["side"]
    assert isinstance(side, TextFeature)
    assert (side.tokens, side.max_tokens, side.is_bag) == (tokens, 40, False)


def test_the_label_and_the_weight_are_no_features() -> None:
    schema = make_schema()
    annotate(schema, dict.fromkeys(("label", "side"), CHOICES["id"]))
    settings = config()
    settings["scopeline"]["weight"] = "side"
    assert with_choices(settings, schema)["scopeline"]["features"] == {}


def test_pictures_without_a_size_have_the_chosen_size() -> None:
    schema = make_schema()
    found = {"type": "image", "height": 30, "width": 40, "channels": 1}
    annotate(schema, {"side": Choice(found, "the median size")})

    def size(**given: object) -> tuple[object, ...]:
        settings = with_choices(config(side={"type": "image", **given}), schema)
        photo = TrainerSettings.from_custom_config(settings).features["side"]
        assert isinstance(photo, ImageFeature)
        return photo.height, photo.width, photo.channels, photo.origin

    assert size() == (30, 40, 1, "bytes")
    assert size(channels=3) == (30, 40, 3, "bytes")
    assert size(**{"from": "path"}) == (30, 40, 1, "path")
    assert size(height=8, width=9) == (8, 9, 3, "bytes")
