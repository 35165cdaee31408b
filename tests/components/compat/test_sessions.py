"""Sessions answer as TensorFlow's own way has them answer."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import logging
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.client.session import BaseSession

from components.compat import tensorflow as sessions


@pytest.fixture(scope="module")
def session() -> Any:
    """A session of a graph with two outputs, a number and a text."""
    graph = tf.Graph()
    with graph.as_default():
        numbers = tf.compat.v1.placeholder(tf.float32, [None], "numbers")
        texts = tf.compat.v1.placeholder(tf.string, [None], "texts")
        tf.identity(numbers * 2, "doubled")
        tf.strings.join([texts, "!"], name="loud")
    with tf.compat.v1.Session(graph=graph) as session:
        yield session


@pytest.mark.parametrize("is_parallel", [False, True])
def test_private_and_public_calls_of_a_session_agree(
    session: Any,
    is_parallel: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = ["texts:0", "numbers:0"], ["doubled:0", "loud:0"]
    given = np.array([b"a", b"\xff"], object), np.array([1.0, np.nan], np.float32)
    fast = sessions.make_callable(session, *names, is_parallel)
    assert isinstance(fast, BaseSession._Callable)
    assert not caplog.messages
    monkeypatch.delattr(BaseSession, "_make_callable_from_options")
    with caplog.at_level(logging.WARNING):
        public = sessions.make_callable(session, *names, is_parallel)
    assert "slower, models answer by Session.make_callable: tensorflow.python" in caplog.text
    stock = session.run(names[1], dict(zip(names[0], given, strict=True)))
    for found in (fast(*given), public(*given)):
        np.testing.assert_array_equal(found[0], stock[0])
        assert found[0].dtype == stock[0].dtype
        assert found[1].tolist() == stock[1].tolist() == [b"a!", b"\xff!"]
    for ask in (fast, public):
        with pytest.raises(tf.errors.InvalidArgumentError):
            ask(given[0], np.array(["no number"], object))


def test_import_messages_are_removed_and_errors_kept(capfd: pytest.CaptureFixture[str]) -> None:
    lines = [
        "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
        "I0000 00:00:17957 15028 cudart_stub.cc:31] Could not find cuda drivers on your machine,"
        " GPU will not be used.",
        "E0000 00:00:17957 15028 cuda.cc:5] out of memory",
    ]
    with sessions.without_import_messages():
        os.write(2, "".join(f"{line}\n" for line in lines).encode())
    os.write(2, b"later\n")
    assert capfd.readouterr().err == f"{lines[2]}\nlater\n"
