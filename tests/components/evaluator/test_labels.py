"""Labels and units of rows are read from the examples for the constant prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tfx.types import Artifact, artifact_utils, standard_artifacts

from components.evaluator.constant_prediction import predict_constant
from components.evaluator.dependence import INDEPENDENT
from components.evaluator.executor import _read_rows
from trainer_module.settings import Task

LISTS = {"INT": "int64_list", "FLOAT": "float_list", "BYTES": "bytes_list"}


def inputs_of(folder: Path, kind: str, values: list[Any]) -> dict[str, list[Artifact]]:
    """A column y of some values beside a column x of the numbers 0, 0, 1, 1, ..."""
    examples, schema = standard_artifacts.Examples(), standard_artifacts.Schema()
    examples.uri, schema.uri = str(folder / "examples"), str(folder / "schema")
    examples.split_names = artifact_utils.encode_split_names(["eval"])
    path = Path(examples.uri, "Split-eval", "data.gz")
    path.parent.mkdir(parents=True)
    Path(schema.uri).mkdir()
    Path(schema.uri, "schema.pbtxt").write_text(
        f'feature {{ name: "y" type: {kind} }} feature {{ name: "x" type: FLOAT }}'
    )
    with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
        for number, value in enumerate(values):
            example = tf.train.Example()
            getattr(example.features.feature["y"], LISTS[kind]).value.append(value)
            example.features.feature["x"].float_list.value.append(number // 2)
            writer.write(example.SerializeToString())
    return {"examples": [examples], "schema": [schema]}


def labels_of(folder: Path, kind: str, values: list[Any], task: Task) -> np.ndarray:
    inputs = inputs_of(folder, kind, values)
    return _read_rows(inputs, ["eval"], "y", INDEPENDENT).labels_for(task)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("FLOAT", [-1.0, 1.0]),
        ("INT", [5, 7]),
        ("BYTES", [b"no", b"yes"]),
    ],
)
def test_binary_labels_of_any_type_are_0_and_1(
    tmp_path: Path, kind: str, values: list[Any]
) -> None:
    labels = labels_of(tmp_path, kind, values * 10, Task.BINARY)
    np.testing.assert_array_equal(labels, [0, 1] * 10)
    constant = predict_constant("auc", labels)
    assert constant is not None
    assert constant.needed < 0.8


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("FLOAT", [0.5, 7.0]),
    ],
)
def test_labels_of_a_regression_are_unchanged(tmp_path: Path, kind: str, values: list[Any]) -> None:
    labels = labels_of(tmp_path, kind, values, Task.REGRESSION)
    np.testing.assert_array_equal(labels, values)
