"""The labels that a constant prediction is made for, as they lie in the examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tfx.types import Artifact, artifact_utils, standard_artifacts

from components.evaluator.constant_prediction import predict_constant
from components.evaluator.executor import _read_labels
from trainer_module.settings import Task

LISTS = {"INT": "int64_list", "FLOAT": "float_list", "BYTES": "bytes_list"}


def labels_of(folder: Path, kind: str, values: list[Any], task: Task) -> np.ndarray:
    examples, schema = standard_artifacts.Examples(), standard_artifacts.Schema()
    examples.uri, schema.uri = str(folder / "examples"), str(folder / "schema")
    examples.split_names = artifact_utils.encode_split_names(["eval"])
    path = Path(examples.uri, "Split-eval", "data.gz")
    path.parent.mkdir(parents=True)
    Path(schema.uri).mkdir()
    Path(schema.uri, "schema.pbtxt").write_text(f'feature {{ name: "y" type: {kind} }}')
    with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
        for value in values:
            example = tf.train.Example()
            getattr(example.features.feature["y"], LISTS[kind]).value.append(value)
            example.features.feature["x"].float_list.value.append(1.5)
            writer.write(example.SerializeToString())
    inputs: dict[str, list[Artifact]] = {"examples": [examples], "schema": [schema]}
    return _read_labels(inputs, "y", "eval", task)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("FLOAT", [1.0, 2.0]),
        ("FLOAT", [-1.0, 1.0]),
        ("INT", [5, 7]),
        ("BYTES", [b"no", b"yes"]),
    ],
)
def test_classes_are_0_and_1_whatever_they_are_called(
    tmp_path: Path, kind: str, values: list[Any]
) -> None:
    labels = labels_of(tmp_path, kind, values * 10, Task.BINARY)
    np.testing.assert_array_equal(labels, [0, 1] * 10)
    constant = predict_constant("auc", labels)
    assert constant is not None
    assert constant.needed < 0.8


@pytest.mark.parametrize(("kind", "values"), [("INT", [100, 900]), ("FLOAT", [0.5, 7.0])])
def test_numbers_are_what_they_are(tmp_path: Path, kind: str, values: list[Any]) -> None:
    labels = labels_of(tmp_path, kind, values, Task.REGRESSION)
    np.testing.assert_array_equal(labels, values)
