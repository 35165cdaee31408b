"""Choices in a schema: written, read, edited, and handed on to what is told what columns are."""

from __future__ import annotations

import pytest
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from components.column_types.choice import (
    Choice,
    annotate,
    read_choices,
    strip_choices,
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


def test_choices_are_read_as_they_were_written(schema: schema_pb2.Schema) -> None:
    assert read_choices(schema) == CHOICES


def test_values_that_will_change_are_no_list_to_keep(schema: schema_pb2.Schema) -> None:
    kept = {f.name for f in schema.feature if f.HasField("domain")}
    assert kept == {domain.name for domain in schema.string_domain} == {"side", "label"}


def test_a_person_may_edit_an_annotation(schema: schema_pb2.Schema) -> None:
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
        ("""tag: '{"type": ignore}'""", "the annotation is not JSON"),
        (
            """tag: '{"type": "own_types.Money"}'""",
            "types of your own code must be declared under features: in",
        ),
        ("""tag: '{"type": "categorical", "size": 9}'""", "size: Extra inputs are not permitted"),
    ],
)
def test_an_edit_that_says_nothing_a_column_can_be_is_refused(
    schema: schema_pb2.Schema, new: str, message: str
) -> None:
    lines = text_format.MessageToString(schema).splitlines()
    old = next(line for line in lines if "ignore" in line).strip()
    with pytest.raises(DataError, match=r"^data/schema\.pbtxt: the annotation of") as error:
        read_choices(edited(schema, old, new), "data/schema.pbtxt")
    assert message in str(error.value)
    assert 'Expected settings such as {"type": "ignore"}' in str(error.value)


def test_the_config_wins_over_choices(schema: schema_pb2.Schema) -> None:
    told = TrainerSettings.from_custom_config(
        with_choices(config(id={"type": "categorical"}), schema)
    )
    assert {name: f.type for name, f in told.features.items()} == {
        "when": "date",
        "id": "categorical",
        "side": "categorical",
    }
    when = told.features["when"]
    assert isinstance(when, DateFeature)
    assert when.format == "%d/%m/%Y"


@pytest.mark.parametrize(("kind", "tokens"), [("bert", "wordpiece"), ("text_cnn", "characters")])
def test_bert_reads_pieces_of_words_whatever_is_found(kind: str, tokens: str) -> None:
    schema = make_schema()
    found = {"type": "text", "tokens": "characters", "ngrams": 3, "max_tokens": 40}
    annotate(schema, {"side": Choice(found, "sentences without spaces between words")})
    told = TrainerSettings.from_custom_config(with_choices(config({"kind": kind}), schema))
    side = told.features["side"]
    assert isinstance(side, TextFeature)
    assert (side.tokens, side.max_tokens, side.is_bag) == (tokens, 40, False)


def test_the_label_and_the_weight_are_no_features() -> None:
    schema = make_schema()
    annotate(schema, dict.fromkeys(("label", "side"), CHOICES["id"]))
    told = config()
    told["scopeline"]["weight"] = "side"
    assert with_choices(told, schema)["scopeline"]["features"] == {}


def test_a_schema_without_choices_changes_nothing() -> None:
    assert with_choices(config(side={"type": "ignore"}), make_schema()) == config(
        side={"type": "ignore"}
    )


def test_choices_are_taken_out_and_tags_of_others_stay(schema: schema_pb2.Schema) -> None:
    schema.feature[0].annotation.tag.insert(0, "personal")
    assert read_choices(schema)["when"] == DATE
    strip_choices(schema)
    assert read_choices(schema) == {}
    assert list(schema.feature[0].annotation.tag) == ["personal"]


def test_pictures_without_a_size_take_the_one_that_was_chosen() -> None:
    schema = make_schema()
    found = {"type": "image", "height": 30, "width": 40, "channels": 1}
    annotate(schema, {"side": Choice(found, "the median size")})

    def size(**given: object) -> tuple[object, ...]:
        told = with_choices(config(side={"type": "image", **given}), schema)
        photo = TrainerSettings.from_custom_config(told).features["side"]
        assert isinstance(photo, ImageFeature)
        return photo.height, photo.width, photo.channels, photo.origin

    assert size() == (30, 40, 1, "bytes")
    assert size(channels=3) == (30, 40, 3, "bytes")
    assert size(**{"from": "path"}) == (30, 40, 1, "path")
    assert size(height=8, width=9) == (8, 9, 3, "bytes")
