"""The schema: inferred once and kept, curated, edited; and what it lets through."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform.tf_metadata import schema_utils

from components.schema_gen.component import fill_gaps
from components.schema_gen.files import keep_schema, read_schema, schema_revision
from components.schema_gen.inference import infer_schema
from trainer_module.errors import DataError
from trainer_module.features.raw_columns import MISSING_INTEGER
from trainer_module.settings import Task


def statistics(**columns: list):
    return tfdv.generate_statistics_from_dataframe(pd.DataFrame(columns))


def test_columns_are_in_the_order_of_their_names() -> None:
    """Those of statistics are in any order, where several processes have added them up."""
    found = statistics(b=[1, 2], a=[3, 4], label=[0, 1])
    found.datasets[0].features.sort(key=lambda feature: feature.path.step[0], reverse=True)
    schema = infer_schema([found], "label", Task.BINARY, [])
    assert [feature.name for feature in schema.feature] == ["a", "b", "label"]


def test_label_classes_of_all_splits_become_its_domain() -> None:
    splits = [
        statistics(x=[1.0, 2.0, 3.0], label=["b", "a", "b"]),
        statistics(x=[1.0, 2.0], label=["c", "a"]),
    ]
    schema = infer_schema(splits, "label", Task.MULTICLASS, [])
    assert list(tfdv.get_domain(schema, "label").value) == ["a", "b", "c"]


def test_label_of_integers_gets_a_range() -> None:
    schema = infer_schema([statistics(label=[0, 3, 9])], "label", Task.MULTICLASS, [])
    domain = tfdv.get_domain(schema, "label")
    assert (domain.min, domain.max) == (0, 9)


def test_label_of_a_regression_is_not_bounded() -> None:
    schema = infer_schema([statistics(label=[0, 3, 9])], "label", Task.REGRESSION, [])
    assert tfdv.get_feature(schema, "label").WhichOneof("domain_info") is None


def test_more_classes_than_tfdv_infers_a_domain_for() -> None:
    classes = [f"c{i:03d}" for i in range(300)]
    schema = infer_schema([statistics(label=classes * 2)], "label", Task.MULTICLASS, [])
    assert list(tfdv.get_domain(schema, "label").value) == classes


def test_images_have_no_domain() -> None:
    schema = infer_schema(
        [statistics(image=["png1", "png2"] * 9, label=["a", "b"] * 9)],
        "label",
        Task.BINARY,
        ["image"],
    )
    assert tfdv.get_feature(schema, "image").WhichOneof("domain_info") is None


def test_gaps_in_what_had_none_are_filled_where_it_is_parsed() -> None:
    first = statistics(x=[1.0, 2.0], n=[1, 2], text=["a", "b"], odd=[None, 1.0], label=[0, 1])
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
    full = statistics(rare=[1.0, None, 2.5], label=[0, 1, 0])
    none = statistics(rare=[None, None, None], label=[0, 1, 0])
    splits = [none, full] if empty == "first" else [full, none]
    schema = infer_schema(splits, "label", Task.BINARY, [])
    rare = tfdv.get_feature(schema, "rare")
    assert (rare.type, rare.lifecycle_stage) == (schema_pb2.FLOAT, 0)
    for split in splits:
        assert not tfdv.validate_statistics(split, schema).anomaly_info


def test_what_a_curated_schema_says_of_tensors_stays() -> None:
    schema = infer_schema([statistics(x=[1.0, 2.0], label=[0, 1])], "label", Task.BINARY, [])
    tensors = schema.tensor_representation_group[""].tensor_representation
    tensors["x"].varlen_sparse_tensor.column_name = "x"
    fill_gaps(schema)
    spec = schema_utils.schema_as_feature_spec(schema).feature_spec
    assert spec["x"] == tf.io.VarLenFeature(tf.float32)
    assert spec["label"] == tf.io.FixedLenFeature([1], tf.int64)


def test_kept_schema_has_a_revision_only_once_it_is_edited(tmp_path: Path) -> None:
    kept = tmp_path / "schema.pbtxt"
    assert schema_revision(None, str(kept)) == ""
    keep_schema(str(kept), infer_schema([statistics(label=["a", "b"])], "label", Task.BINARY, []))
    assert schema_revision(None, str(kept)) == ""
    assert read_schema(str(kept), "label").feature[0].name == "label"
    kept.write_text(kept.read_text().replace('"a"', '"z"'))
    edited = schema_revision(None, str(kept))
    assert len(edited) == 64
    assert schema_revision(str(kept), str(tmp_path / "other")) != ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("feature { nme: 'x' }", "not a schema in text format: 1:11"),
        ("feature { name: 'x' type: INT }", "no feature for the label `label`, only for x"),
    ],
)
def test_unusable_schema_is_explained(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "schema.pbtxt"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        read_schema(str(path), "label")
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_schema_is_a_proto_that_tfdv_reads(tmp_path: Path) -> None:
    kept = tmp_path / "schema.pbtxt"
    schema = infer_schema([statistics(label=["a", "b"])], "label", Task.BINARY, [])
    keep_schema(str(kept), schema)
    assert tfdv.load_schema_text(str(kept)) == schema
    assert isinstance(schema, schema_pb2.Schema)
