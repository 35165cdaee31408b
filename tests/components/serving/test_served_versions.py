"""Versions that come and go while a server answers, and the command that starts one."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import requests

from components.pusher.versions import (
    delete_atomically,
    lift_withdrawal,
    list_versions,
    mark_withdrawn,
)
from components.serving.model import Model
from components.serving.server import repository as repository_module
from components.serving.server.options import (
    KEY_VARIABLE,
    ServeOptions,
    check_options,
)
from components.serving.server.repository import Repository
from components.serving.server.worker import open_repository
from pipeline.cli.serve import read_key, served_model
from tests.support.served_trips import ROOT, Pushed
from tests.support.servers import (
    free_port,
    running,
    serve_process,
    wait_for,
    wait_until,
    wait_until_ready,
)
from trainer_module.errors import ConfigError, DataError

Rows = list[dict[str, Any]]


def look(repository: Repository) -> None:
    """Twice, as files that have just changed have to be the same at the next look."""
    repository.scan()
    repository.scan()


def write_version(version: Path, graph: str = "graph") -> None:
    (version / "variables").mkdir(parents=True)
    (version / "variables" / "data").write_text("data")
    (version / "saved_model.pb").write_text(graph)


class Loading:
    """Loads a model for each version but those of which the graph is bad, and notes which."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.loaded: list[str] = []

    def __call__(self, version: Path) -> Model:
        self.loaded.append(version.name)
        if (version / "saved_model.pb").read_text() == "bad":
            raise DataError("it is bad")
        return self.model


@pytest.fixture
def loading(model: Model, monkeypatch: pytest.MonkeyPatch) -> Loading:
    monkeypatch.setattr(repository_module, "_SETTLE_SECONDS", 0.02)
    monkeypatch.setattr(repository_module, "_free_memory", lambda: None)  # It takes long here.
    return Loading(model)


def test_named_version_is_served_alone(loading: Loading, tmp_path: Path) -> None:
    for number in ("1", "2"):
        write_version(tmp_path / "trips" / number)
    mark_withdrawn(tmp_path / "trips" / "1", "wrong labels")
    for named, number in ((tmp_path / "trips", 2), (tmp_path / "trips" / "1", 1)):
        served = served_model(None, tmp_path, named, None)
        assert (served.name, served.first) == ("trips", tmp_path / "trips" / str(number))
        repository = Repository(served.folder, loading, served.version)
        repository.scan()
        assert [(s.number, s.state) for s in repository.states if s.state != "END"] == [
            (number, "AVAILABLE")
        ]
    (tmp_path / "trips" / "1").rename(tmp_path / "best")
    with pytest.raises(ConfigError, match="best: the name of a served version is its number"):
        served_model(None, tmp_path, tmp_path / "best", None)


def test_failed_version_is_loaded_again_when_its_files_change(
    loading: Loading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository_module, "MIN_PAUSE_SECONDS", 600.0)
    write_version(tmp_path / "1")
    write_version(tmp_path / "2", "bad")
    repository = Repository(tmp_path, loading)
    for _ in range(3):
        look(repository)
    assert (repository.number, repository.failures, loading.loaded) == (1, 1, ["2", "1"])
    (tmp_path / "2" / "saved_model.pb").write_text("complete by now")
    look(repository)
    assert (repository.number, repository.failures) == (2, 0)

    write_version(tmp_path / "3", "bad")
    look(repository)
    delete_atomically(tmp_path / "3")
    repository.scan()
    assert [state.number for state in repository.states] == [2, 1]
    write_version(tmp_path / "3")
    look(repository)
    assert repository.number == 3
    # Another one under the number that answers.
    delete_atomically(tmp_path / "3")
    write_version(tmp_path / "3", "another graph")
    before = len(loading.loaded)
    look(repository)
    assert (repository.number, loading.loaded[before:]) == (3, ["3"])


def test_failed_version_is_retried_after_growing_pauses(
    loading: Loading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_version(tmp_path / "1", "bad")
    now = 0.0
    monkeypatch.setattr("components.serving.server.repository.time.monotonic", lambda: now)
    repository, tried = Repository(tmp_path, loading), []
    for second in range(0, 2000, 5):
        now = float(second)
        before = len(loading.loaded)
        repository.scan()
        if len(loading.loaded) > before:
            tried.append(second)
    assert tried == [0, 5, 15, 35, 75, 155, 315, 635, 1235, 1835]


def test_version_being_written_is_not_loaded(loading: Loading, tmp_path: Path) -> None:
    write_version(tmp_path / "1")
    repository = Repository(tmp_path, loading)
    repository.scan()
    graph = tmp_path / "2" / "saved_model.pb"
    write_version(tmp_path / "2")
    graph.unlink()
    look(repository)
    look(repository)
    graph.write_text("half a ")
    repository.scan()
    graph.write_text("half a graph")
    os.utime(graph, (0, 0))  # As rsync and `cp -p` do.
    repository.scan()
    assert (repository.number, repository.failures, loading.loaded) == (1, 0, ["1"])
    assert (repository.states[0].state, repository.states[0].message) == ("START", "")
    repository.scan()
    assert (repository.number, loading.loaded) == (2, ["1", "2"])
    # What is damaged later in its folder goes on as it was loaded.
    graph.write_text("bad")
    look(repository)
    assert (repository.number, repository.failures) == (2, 1)
    state = repository.states[0]
    assert (state.state, state.message.partition(";")[0]) == ("AVAILABLE", "it is bad")


def test_withdrawn_version_is_not_served(loading: Loading, tmp_path: Path) -> None:
    for number, graph in (("1", "graph"), ("2", "bad"), ("3", "graph"), ("4", "bad")):
        write_version(tmp_path / number, graph)
    mark_withdrawn(tmp_path / "3", "wrong labels")
    repository = Repository(tmp_path, loading)
    repository.scan()
    assert repository.number == 1
    assert [(s.number, s.message) for s in repository.states] == [
        (4, "it is bad"),
        (3, "it was withdrawn: wrong labels"),
        (2, "it is bad"),
        (1, ""),
    ]
    assert repository.failures == 2, "one that was withdrawn is none that failed"
    delete_atomically(tmp_path / "1")
    options = ServeOptions("trips", tmp_path, waits=True)
    with pytest.raises(ConfigError, match="version 3: it was withdrawn: wrong labels"):
        open_repository(options)


def test_withdrawn_version_is_served_while_no_other_loads(loading: Loading, tmp_path: Path) -> None:
    write_version(tmp_path / "1", "bad")
    write_version(tmp_path / "2")
    repository = Repository(tmp_path, loading)
    repository.scan()
    mark_withdrawn(tmp_path / "2", None)
    look(repository)
    assert repository.number == 2
    assert repository.states[0].state == "AVAILABLE"
    assert "withdrawn" in repository.states[0].message
    lift_withdrawal(tmp_path / "2")
    repository.scan()
    assert repository.states[0].message == ""
    assert loading.loaded == ["2", "1"], "a mark changes no files"
    mark_withdrawn(tmp_path / "2", None)
    (tmp_path / "1" / "saved_model.pb").write_text("graph")
    look(repository)
    assert repository.number == 1


@pytest.mark.proof
def test_server_answers_while_versions_change(
    pushed: Pushed, instances: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a look at the folder fails; once nobody looks, it is not healthy."""
    looks: list[Path] = []

    def fail_at_first(folder: Path) -> list[Path]:
        looks.append(folder)
        if len(looks) < 4:
            raise RuntimeError("the volume is away")
        return list_versions(folder)

    monkeypatch.setattr(repository_module, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(repository_module, "list_versions", fail_at_first)
    serving = tmp_path / "trips"
    serving.mkdir()
    repository = Repository(serving)
    statuses: list[int] = []
    with running(ServeOptions("trips", serving, waits=True), repository=repository) as server:
        url = f"{server}/v1/models/trips"

        def predict() -> requests.Response:
            return requests.post(f"{url}:predict", json={"instances": instances[:1]}, timeout=60)

        def serves(version: str) -> bool:
            statuses.append(predict().status_code)
            spec = requests.get(f"{url}/metadata", timeout=60).json()["model_spec"]
            return bool(spec["version"] == version)

        early = predict()
        assert (early.status_code, early.headers["retry-after"]) == (503, "1")
        for number in ("1", "2"):
            shutil.copytree(pushed.version, tmp_path / number)
            (tmp_path / number).rename(serving / number)
            wait_until(lambda: requests.get(f"{server}/v2/health/ready", timeout=60).ok)
            wait_until(lambda wanted=number: serves(wanted))
        mark_withdrawn(serving / "2", "wrong labels")
        wait_until(lambda: serves("1"))
        assert set(statuses) == {200}
        repository.stop()
        wait_until(lambda: not repository.is_watching)
        assert requests.get(f"{server}/healthz", timeout=60).status_code == 503


def test_public_server_without_a_key_is_refused(tmp_path: Path) -> None:
    options = ServeOptions("trips", tmp_path, host="0.0.0.0")  # noqa: S104 - what is refused
    with pytest.raises(ConfigError, match="SCOPELINE_API_KEY"):
        check_options(options, is_insecure=False)
    check_options(options, is_insecure=True)
    check_options(ServeOptions("trips", tmp_path, host="0.0.0.0", key="k"), False)  # noqa: S104
    one = ServeOptions("trips", tmp_path, certificate=Path(__file__))
    with pytest.raises(ConfigError, match="--tls-cert and --tls-key go together"):
        check_options(one, False)


def test_empty_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, " \n")
    with pytest.raises(ConfigError, match="SCOPELINE_API_KEY"):
        read_key()
    monkeypatch.setenv(KEY_VARIABLE, "k")
    assert read_key() == "k"
    monkeypatch.delenv(KEY_VARIABLE)
    assert read_key() == ""


@pytest.mark.slow
def test_serve_command_follows_versions_until_sigterm(pushed: Pushed, tmp_path: Path) -> None:
    serving, port = tmp_path / "trips" / "serving" / "trips", free_port()
    config = ROOT / "configs" / "taxi.yaml"
    options = "--set", "name=trips", "--config", config, "--output", tmp_path
    serving.mkdir(parents=True)
    url = f"http://127.0.0.1:{port}/v1/models/trips"
    body = {"instances": [{"fare": 1, "price__EUR_": 1, "area": 8, "company": "", "tags": []}]}
    with serve_process(tmp_path / "log", port, *options) as process:
        ready = f"http://127.0.0.1:{port}/v2/health/ready"
        wait_for(lambda: requests.get(ready, timeout=10).status_code == 400, process)
        instances = requests.post(f"{url}:predict", json=body, timeout=10)
        assert (instances.status_code, instances.headers["retry-after"]) == (503, "1")
        shutil.copytree(pushed.version, tmp_path / "first")
        (tmp_path / "first").rename(serving / "1")
        wait_until_ready(port, process)
        shutil.copytree(pushed.version, tmp_path / "copy")
        (tmp_path / "copy").rename(serving / "2")
        statuses = []

        def answers_by(version: str) -> bool:
            statuses.append(requests.post(f"{url}:predict", json=body, timeout=30).status_code)
            spec = requests.get(f"{url}/metadata", timeout=10).json()["model_spec"]
            return bool(spec["version"] == version)

        wait_for(lambda: answers_by("2"), process)
        mark_withdrawn(serving / "2", "wrong labels")
        wait_for(lambda: answers_by("1"), process)
        assert set(statuses) == {200}
        with serve_process(tmp_path / "taken", port, *options) as another:
            assert another.wait(120) == 2
        assert f"--port {port} is not available on 127.0.0.1" in (tmp_path / "taken").read_text()
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    log = (tmp_path / "log").read_text()
    assert process.returncode == 0, log
    assert "has no version yet" in log
    for number in (2, 1):
        assert f'"message": "version {number} is in service"' in log
