"""The messages of TFMA's config, which `tfx.components` adds to TFMA and a run adds itself."""

from __future__ import annotations

import pytest
import tensorflow_model_analysis as tfma
import tfx.components
from tensorflow_model_analysis.proto import config_pb2

from components.compat.tfx import add_config_messages


def test_a_run_adds_all_messages_that_tfx_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tfx.components.Evaluator is not None, "TFX's package has been executed"
    messages = [name for name in dir(config_pb2) if hasattr(tfma, name) and name[0].isupper()]
    messages = [name for name in messages if isinstance(getattr(config_pb2, name), type)]
    assert "EvalConfig" in messages
    for name in messages:
        monkeypatch.delattr(tfma, name)
    add_config_messages()
    assert all(getattr(tfma, name) is getattr(config_pb2, name) for name in messages)
