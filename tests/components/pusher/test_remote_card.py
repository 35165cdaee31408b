"""The model card of a version in an object store."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tfx.dsl.io import fileio
from tfx.types import standard_artifacts

from components.pusher import component
from components.pusher.versions import CARD_JSON


def test_card_that_cannot_be_copied_does_not_fail_the_push(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    card = tmp_path / "card" / CARD_JSON
    card.parent.mkdir()
    card.write_text("{}")
    version = tmp_path / "version"
    version.mkdir()
    pushed = standard_artifacts.PushedModel()
    pushed.uri = str(version)
    pushed.set_string_custom_property("pushed_destination", str(version))
    component._push_card(str(card.parent), pushed)
    assert (version / CARD_JSON).read_text() == "{}"

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("403 Forbidden")

    monkeypatch.setattr(fileio, "copy", fail)
    with caplog.at_level(logging.INFO):
        component._push_card(str(card.parent), pushed)
    assert "403 Forbidden" in caplog.text
