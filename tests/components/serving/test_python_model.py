"""`scopeline.load_model` and `scopeline.serve`: a version in Python and behind HTTP, alike."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import requests

import scopeline
from components.serving.model import Model
from pipeline.python.server import local_session
from tests.support.served_pictures import INTERFACE, encode, push_pictures
from tests.support.served_trips import Pushed, expected
from trainer_module.errors import ConfigError, DataError

Rows = list[dict[str, Any]]


@pytest.fixture
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a program that has set nothing for TensorFlow."""
    for name in ("TF_USE_LEGACY_KERAS", "TF_CPP_MIN_LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.proof
def test_rows_columns_and_frames_are_predicted_alike(
    pushed: Pushed, model: Model, rows: Rows, no_variables: None
) -> None:
    loaded = scopeline.load_model(pushed.serving)
    assert not {"TF_USE_LEGACY_KERAS", "TF_CPP_MIN_LOG_LEVEL"} & os.environ.keys()
    assert (loaded.folder, loaded.classes) == (pushed.version, ("0", "1"))
    given = [{name: row[name] for name in row if name != "trip id"} for row in rows[:20]]
    assert set(loaded.columns) == given[0].keys()
    right = expected(model, rows[:20])
    answers = loaded.predict(given)
    assert answers[0].keys() == {"class", "score_0", "score_1"}
    np.testing.assert_allclose([answer["score_1"] for answer in answers], right, atol=1e-6)
    columns = {name: [row[name] for row in given] for name in given[0]}
    assert loaded.predict(columns)["class"] == [answer["class"] for answer in answers]
    table = pd.DataFrame(given, index=range(7, 27)).assign(other=1j)
    frame = loaded.predict(table, top_k=1)
    assert list(frame.columns) == ["class", "classes_1", "scores_1"]
    assert list(frame.index) == list(range(7, 27))
    with pytest.raises(DataError, match=r"^rows: the model has no column `fares`"):
        loaded.predict([{**given[0], "fares": 1}])
    with pytest.raises(DataError, match="is b'x' of the type bytes"):
        loaded.predict([{**given[0], "fare": b"x"}])
    with pytest.raises(ConfigError, match=r"^top_k=-1: expected a whole number"):
        loaded.predict(given, top_k=-1)
    with pytest.raises(DataError, match="no column `fare`"):
        loaded.predict([{name: given[0][name] for name in given[0] if name != "fare"}])


@pytest.mark.slow
def test_pictures_are_paths_or_bytes(tmp_path: Path) -> None:
    version = push_pictures(tmp_path / "serving")
    (tmp_path / "white.png").write_bytes(encode())
    loaded = scopeline.load_model(version)
    name = INTERFACE.columns[0].name
    for picture in (tmp_path / "white.png", str(tmp_path / "white.png"), encode()):
        assert loaded.predict([{name: picture}]) == [{"value": 1.0}]
    with pytest.raises(DataError, match=r"nope\.png, which cannot be read"):
        loaded.predict([{name: "nope.png"}])


@pytest.mark.slow
def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^source .*nope is not a folder"):
        scopeline.load_model(tmp_path / "nope")
    with pytest.raises(ConfigError, match=r"^source .*nope is not a folder"):
        scopeline.serve(tmp_path / "nope")
    with pytest.raises(ConfigError, match=r"^port=70000: expected a number from 0 to 65535"):
        scopeline.serve(tmp_path, port=70000)


@pytest.mark.slow
def test_served_version_answers_until_stop(
    pushed: Pushed, rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCOPELINE_API_KEY", "secret")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    for number in ("1", "2"):
        shutil.copytree(pushed.version, tmp_path / "trips" / number)
    row = {name: value for name, value in rows[0].items() if name != "trip id"}
    with scopeline.serve(tmp_path / "trips" / "1") as server:
        right = scopeline.load_model(pushed.version).predict([row])[0]
        (answer,) = server.predict(pd.DataFrame([rows[0]]))
        assert answer["class"] == right["class"]
        assert answer["scores"][1] == pytest.approx(right["score_1"], abs=1e-6)
        with local_session() as session:
            status = session.get(
                f"{server.url}/v1/models/{server.name}", headers={"X-API-Key": "secret"}, timeout=30
            ).json()
        assert [v["version"] for v in status["model_version_status"]] == ["1"]
        with pytest.raises(DataError, match="did you mean"):
            server.predict([{**row, "fares": 1}])
        messages = [json.loads(line)["message"] for line in server.log.splitlines()]
        assert "version 1 is in service" in messages
    assert repr(server) == "<server of trips: stopped>"
    with local_session() as session, pytest.raises(requests.ConnectionError):
        session.get(server.url, timeout=30)
    with pytest.raises(ConfigError, match="the server of trips has stopped"):
        server.predict([row])
    server.stop()
