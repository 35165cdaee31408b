"""The schema: inferred once and kept, edited, and changed to accept data."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_data_validation as tfdv
from google.protobuf import text_format
from PIL import Image
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2
from tensorflow_transform.tf_metadata import schema_utils
from tfx.types import artifact_utils, standard_artifacts

from components.column_types.choice import Choice, annotate, read_choices
from components.example_validator.anomalies import contradicted_columns
from components.schema_gen.component import Executor, fill_gaps
from components.schema_gen.files import edit_schema, keep_schema, read_schema, schema_revision
from components.schema_gen.inference import accept_data, infer_schema
from trainer_module.errors import DataError
from trainer_module.features.raw_columns import MISSING_INTEGER
from trainer_module.settings import Task


def count(**columns: list):
    return tfdv.generate_statistics_from_dataframe(pd.DataFrame(columns))


def test_domain_of_the_label_has_the_classes_of_all_splits() -> None:
    splits = [
        count(x=[1.0, 2.0, 3.0], label=["b", "a", "b"]),
        count(x=[1.0, 2.0], label=["c", "a"]),
    ]
    schema = infer_schema(splits, "label", Task.MULTICLASS, [])
    assert list(tfdv.get_domain(schema, "label").value) == ["a", "b", "c"]


def test_missing_values_have_defaults() -> None:
    first = count(x=[1.0, 2.0], n=[1, 2], text=["a", "b"], odd=[None, 1.0], label=[0, 1])
    schema = infer_schema([first], "label", Task.BINARY, [])
    assert [feature.name for feature in schema.feature if feature.HasField("shape")] == ["label"]
    fill_gaps(schema)
    spec = schema_utils.schema_as_feature_spec(schema).feature_spec
    assert {name for name in spec if isinstance(spec[name], tf.io.VarLenFeature)} == {"odd"}
    assert np.isnan(spec["x"].default_value)
    assert (spec["n"].default_value, spec["text"].default_value) == (MISSING_INTEGER, "")
    assert spec["label"].default_value is None


@pytest.mark.parametrize("empty", ["first", "last"])
def test_a_column_may_be_empty_in_one_split(empty: str) -> None:
    full = count(rare=[1.0, None, 2.5], label=[0, 1, 0])
    none = count(rare=[None, None, None], label=[0, 1, 0])
    splits = [none, full] if empty == "first" else [full, none]
    schema = infer_schema(splits, "label", Task.BINARY, [])
    rare = tfdv.get_feature(schema, "rare")
    assert (rare.type, rare.lifecycle_stage) == (schema_pb2.FLOAT, 0)
    for split in splits:
        assert not tfdv.validate_statistics(split, schema).anomaly_info


def test_only_an_edited_schema_has_a_revision(tmp_path: Path) -> None:
    kept = tmp_path / "schema.pbtxt"
    assert schema_revision(None, str(kept)) == ""
    keep_schema(str(kept), infer_schema([count(label=["a", "b"])], "label", Task.BINARY, []))
    assert schema_revision(None, str(kept)) == ""
    assert read_schema(str(kept), "label").feature[0].name == "label"
    kept.write_text(kept.read_text().replace('"a"', '"z"'))
    edited = schema_revision(None, str(kept))
    assert len(edited) == 64
    assert schema_revision(str(kept), str(tmp_path / "other")) != ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("feature { nme: 'x' }", "1:11"),
        ("feature { name: 'x' type: INT }", "`label`"),
    ],
)
def test_invalid_schema_is_refused(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "schema.pbtxt"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        read_schema(str(path), "label")
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


Run = Callable[..., dict[str, int]]


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The schema of a first day, when `day` and `size` were quantities."""
    first = count(day=[2.0, 3.0], size=[1.5, 2.5], label=[0, 1])
    path = tmp_path / "schema.pbtxt"
    keep_schema(str(path), infer_schema([first], "label", Task.BINARY, []))
    return path


@pytest.fixture
def generate(tmp_path: Path, kept: Path) -> Run:
    """Runs the executor on later data; returns the types of the columns in the schema it gives."""

    def run(names: list[str], curated: str = "") -> dict[str, int]:
        statistics, schema = standard_artifacts.ExampleStatistics(), standard_artifacts.Schema()
        statistics.uri, schema.uri = str(tmp_path / "statistics"), str(tmp_path)
        statistics.split_names = artifact_utils.encode_split_names(["train"])
        Path(statistics.uri, "Split-train").mkdir(parents=True)
        later = count(day=[20230101, 20230102], size=[1.5, 2.5], label=[0, 1])
        Path(statistics.uri, "Split-train/FeatureStats.pb").write_bytes(later.SerializeToString())
        Path(schema.uri, "schema").mkdir()
        schema.uri += "/schema"
        properties = {"curated": curated, "kept": str(kept), "label": "label", "task": "binary"}
        properties |= {"images": "[]", "aside": "", "names": json.dumps(names), "unsized": "[]"}
        Executor().Do({"statistics": [statistics]}, {"schema": [schema]}, properties)
        given = tfdv.load_schema_text(str(Path(schema.uri, "schema.pbtxt")))
        return {feature.name: feature.type for feature in given.feature}

    return run


def test_inferred_type_follows_the_config(kept: Path, generate: Run) -> None:
    types = generate(["day", "size", "label"])
    assert types == {"day": schema_pb2.INT, "size": schema_pb2.FLOAT, "label": schema_pb2.INT}
    assert tfdv.get_feature(tfdv.load_schema_text(str(kept)), "day").type == schema_pb2.INT
    assert schema_revision(None, str(kept)) == ""


@pytest.mark.parametrize("is_curated", [True, False])
def test_edited_schema_is_refused_instead_of_changed(
    is_curated: bool, kept: Path, generate: Run
) -> None:
    kept.write_text(kept.read_text() + "# mine\n")
    with pytest.raises(DataError, match=r"schema\.pbtxt: column 'day'.*`type: INT`"):
        generate(["day", "size"], curated=str(kept) if is_curated else "")
    assert kept.read_text().endswith("# mine\n")


def test_size_of_pictures_is_kept_in_the_schema(tmp_path: Path) -> None:
    pictures = []
    for width in (8, 9, 9):
        written = io.BytesIO()
        Image.new("L", (width, 7)).save(written, "PNG")
        pictures.append(written.getvalue())
    kept = tmp_path / "schema.pbtxt"

    def size_of(*pictures: bytes, aside: str, day: str) -> dict[str, object]:
        statistics, examples = standard_artifacts.ExampleStatistics(), standard_artifacts.Examples()
        schema = standard_artifacts.Schema()
        for artifact in (statistics, examples, schema):
            artifact.uri = str(tmp_path / day / artifact.type_name)
            Path(artifact.uri, "Split-train").mkdir(parents=True)
        for artifact in (statistics, examples):
            artifact.split_names = artifact_utils.encode_split_names(["train"])
        found = count(photo=list(pictures), label=[0] * len(pictures))
        Path(statistics.uri, "Split-train/FeatureStats.pb").write_bytes(found.SerializeToString())
        file = f"{examples.uri}/Split-train/data_tfrecord-00000-of-00001.gz"
        with tf.io.TFRecordWriter(file, "GZIP") as writer:
            for picture in pictures:
                example = tf.train.Example()
                example.features.feature["photo"].bytes_list.value.append(picture)
                writer.write(example.SerializeToString())
        properties = {"curated": "", "kept": str(kept), "label": "label", "task": "binary"}
        properties |= {"images": '["photo"]', "aside": aside, "names": "[]"}
        inputs = {"statistics": [statistics], "examples": [examples]}
        Executor().Do(inputs, {"schema": [schema]}, {**properties, "unsized": '["photo"]'})
        return read_choices(tfdv.load_schema_text(f"{schema.uri}/schema.pbtxt"))["photo"].settings

    size = {"type": "image", "height": 7, "width": 9, "channels": 1}
    assert size_of(*pictures, aside='["label"]', day="first") == size
    # Later data is resized as the first, also where a function of the user's makes the features.
    assert size_of(pictures[0], aside="", day="second") == size
    kept.unlink()
    assert size_of(pictures[0], aside='["label"]', day="third") == {**size, "width": 8}
    kept.unlink()
    with pytest.raises(DataError, match="'photo'"):
        size_of(b"text", aside='["label"]', day="fourth")


ROWS: dict[str, list[Any]] = {
    "age": [20.0, 30.5, 40.0, 50.0],
    "zip": [7, 12, 7, 99],
    "plan": ["gold", "basic"] * 2,
    "label": ["no", "yes"] * 2,
}


def changed(**columns: Any) -> statistics_pb2.DatasetFeatureStatisticsList:
    given = {name: values for name, values in (ROWS | columns).items() if values is not None}
    return tfdv.generate_statistics_from_dataframe(pd.DataFrame(given))


@pytest.fixture
def schema() -> schema_pb2.Schema:
    schema = infer_schema([changed()], "label", Task.BINARY, [])
    tfdv.get_feature(schema, "age").float_domain.min = 18
    return schema


def accept(schema: schema_pb2.Schema, *splits: Any, columns: Any = None) -> schema_pb2.Schema:
    columns = columns or contradicted_columns(schema, splits)
    return accept_data(schema, splits, columns, "label", Task.BINARY, [])


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("age", [None, 21.0] * 2),
        ("age", [17.0] * 4),
        ("age", ["old", "young"] * 2),
        ("age", None),
        ("plan", ["gold", "tin"] * 2),
        ("label", ["no", "maybe"] * 2),
        ("new", ["a", "b"] * 2),
    ],
)
def test_accepted_data_has_no_anomaly(
    column: str, values: list[Any] | None, schema: schema_pb2.Schema
) -> None:
    now = changed(**{column: values})
    for splits in ([now], [now, now]):
        assert contradicted_columns(schema, splits) == [column]
        accepted = accept(schema, *splits)
        assert contradicted_columns(accepted, splits) == []
        others = [f for f in schema.feature if f.name != column]
        assert [f for f in accepted.feature if f.name != column] == others


def test_one_column_is_accepted(schema: schema_pb2.Schema) -> None:
    now = changed(age=[17.0] * 4, plan=["tin"] * 4)
    accepted = accept(schema, now, columns=["plan"])
    assert contradicted_columns(accepted, [now]) == ["age"]


def test_comments_of_an_edited_schema_are_kept() -> None:
    text = """# Ours.
feature { name: "age" type: FLOAT }  # In years, { not months.
feature {
  name: 'label'  # "yes" or "no"
  type: BYTES
  domain: "label"
}
feature { name: "gone" type: INT }
string_domain { name: "label" value: "no" value: "yes" }
default_environment: "training"
"""
    before = text_format.Parse(text, schema_pb2.Schema())
    after = schema_pb2.Schema()
    after.CopyFrom(before)
    after.string_domain[0].value.append("maybe")
    del after.feature[2]
    after.feature.add(name="new", type=schema_pb2.INT)
    edited = edit_schema(text, before, after)
    assert text_format.Parse(edited, schema_pb2.Schema()) == after
    kept = text[: text.index('feature { name: "gone"')]
    assert edited.startswith(kept)
    assert 'default_environment: "training"' in edited
    assert edit_schema(text, before, before) == text


def test_choices_are_kept_unless_the_type_changes(
    schema: schema_pb2.Schema,
) -> None:
    choices = {
        name: Choice({"type": kind}, "a test")
        for name, kind in {"age": "ignore", "plan": "boolean", "zip": "categorical"}.items()
    }
    annotate(schema, choices)
    accepted = accept(schema, changed(age=["old", "young"] * 2, plan=["gold", "tin"] * 2))
    assert read_choices(accepted) == {name: choices[name] for name in ("plan", "zip")}
    text = edit_schema(text_format.MessageToString(schema), schema, accepted)
    assert read_choices(text_format.Parse(text, schema_pb2.Schema())) == read_choices(accepted)
