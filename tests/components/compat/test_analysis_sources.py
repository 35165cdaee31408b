"""What analyses depend on is what TensorFlow Transform finds itself."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import tensorflow as tf
from tensorflow_transform import graph_tools

from components.compat.tft import look_up_sources


@pytest.fixture
def stock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """TensorFlow Transform's functions as they are in its file; those in use come back."""
    for name in ("retrieve_sources", "_retrieve_source_keys", "_set_unique_value_in_dict"):
        monkeypatch.setattr(graph_tools, name, getattr(graph_tools, name))
    analyzer = graph_tools.InitializableGraphAnalyzer
    monkeypatch.setattr(analyzer, "get_dependent_inputs", analyzer.get_dependent_inputs)
    spec = importlib.util.find_spec(graph_tools.__name__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_sources_equal_those_of_stock_transform(stock: Any) -> None:
    with tf.Graph().as_default():
        inputs = {name: tf.compat.v1.placeholder(tf.float32, [None]) for name in "abcd"}
        inputs["sparse"] = tf.compat.v1.sparse_placeholder(tf.float32, [None, 1])
        with tf.control_dependencies([inputs["d"]]):
            total = tf.stack([inputs["a"] * 2, inputs["b"] - inputs["a"]])
        cases = [[total], [total, inputs["c"]], [inputs["sparse"].values], [tf.constant(1.0)]]
        look_up_sources()
        for tensors in cases:
            expected = stock._retrieve_source_keys(tensors, inputs)
            assert graph_tools._retrieve_source_keys(tensors, inputs) == expected
        assert graph_tools._retrieve_source_keys(cases[1], inputs) == {"a", "b", "c"}
        for ignored in (False, True):
            expected = list(stock.retrieve_sources([total.op], ignored))
            found = list(graph_tools.retrieve_sources([total.op], ignored))
            assert {tensor.name for tensor in found} == {tensor.name for tensor in expected}
            assert len(found) == (2 if ignored else 3)


def test_dependent_inputs_equal_those_of_stock_transform(stock: Any) -> None:
    with tf.Graph().as_default() as graph:
        inputs = {name: tf.compat.v1.placeholder(tf.float32, [None]) for name in "dcba"}
        inputs["sparse"] = tf.compat.v1.sparse_placeholder(tf.float32, [None, 1])
        outputs = {
            "total": inputs["a"] + inputs["d"],
            "none": tf.constant(1.0),
            "sparse": inputs["sparse"],
            "both": tf.reduce_sum(inputs["sparse"].values) * inputs["c"],
        }
    look_up_sources()
    for count in range(len(outputs) + 1):
        some = dict(list(outputs.items())[:count])
        expected = stock.get_dependent_inputs(graph, inputs, some)
        found = graph_tools.get_dependent_inputs(graph, inputs, some)
        assert list(found) == list(expected)
        assert all(found[name] is value for name, value in expected.items())
    assert list(found) == ["d", "c", "a", "sparse"]
