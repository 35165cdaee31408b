"""Metadata on a real MariaDB server: runs, plans, refusals; the password stays out of all files."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.config.metadata_url import PASSWORD_VARIABLE
from tests.support.mariadb_server import PASSWORD, MariaDB, mariadb
from tests.support.project import SMALL, Project, few_digits, plain

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDB]:
    with mariadb() as running, pytest.MonkeyPatch.context() as patch:
        running.administer("CREATE DATABASE meta")
        patch.setenv(PASSWORD_VARIABLE, PASSWORD)
        yield running


def arguments(server: MariaDB, database: str = "meta") -> list[str]:
    keys = {
        "metadata": server.url(database),
        "data.path": "few",
        "train.epochs": "1",
        "evaluate.thresholds": "{}",
        "certificate": "false",
    }
    settings = [SMALL, *(f"{key}={value}" for key, value in keys.items())]
    return [part for setting in settings for part in ("--set", setting)]


@pytest.fixture(scope="module")
def first(project: Project, server: MariaDB) -> subprocess.CompletedProcess[str]:
    few_digits(project.folder)
    return project.scopeline("run", *arguments(server))


def test_run_keeps_its_metadata_on_the_server(project: Project, server: MariaDB, first) -> None:
    assert first.returncode == 0, first.stdout + first.stderr
    assert project.summary("digits")["status"] == "pushed"
    assert not (project.output / "digits" / "metadata.db").exists()
    ((executions,),) = server.administer("SELECT COUNT(*) FROM Execution", "meta")
    assert executions >= len(project.states("digits"))


def test_plan_copies_the_metadata_and_finds_nothing_to_do(
    project: Project, server: MariaDB, first
) -> None:
    before = server.administer("SELECT COUNT(*), MAX(id) FROM Execution", "meta")
    done = project.scopeline("plan", *arguments(server))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing to do: a run would change nothing" in plain(done.stdout)
    changed = project.scopeline("plan", *arguments(server), "--set", "train.epochs=2")
    assert "epochs 1 -> 2" in plain(changed.stdout)
    other = project.scopeline("plan", *arguments(server), "--set", "name=other")
    assert "ExampleGen        runs    it has not run yet" in plain(other.stdout)
    assert server.administer("SELECT COUNT(*), MAX(id) FROM Execution", "meta") == before


def test_second_run_is_cached(project: Project, server: MariaDB, first) -> None:
    second = project.scopeline("run", "--verbose", *arguments(server))
    assert second.returncode == 0, second.stdout + second.stderr
    assert " INFO " in second.stdout + second.stderr, "everything is shown"
    assert PASSWORD not in second.stdout + second.stderr
    assert set(project.states("digits").values()) == {"cached"}


def test_wrong_password_is_refused_before_a_run(
    project: Project, server: MariaDB, first, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = list((project.output / "digits" / "runs").iterdir())
    monkeypatch.setenv(PASSWORD_VARIABLE, f"not-{PASSWORD}")
    refused = project.scopeline("run", *arguments(server))
    assert refused.returncode == 2
    assert f"{PASSWORD_VARIABLE} contains a wrong password" in refused.stderr
    assert PASSWORD not in refused.stdout + refused.stderr
    assert "Traceback" not in refused.stdout + refused.stderr
    assert list((project.output / "digits" / "runs").iterdir()) == runs
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    missing = project.scopeline("plan", *arguments(server, "meta_missing"))
    assert missing.returncode == 2
    assert "has no database 'meta_missing'" in missing.stderr


def test_password_is_in_no_file_and_not_on_the_screen(project: Project, first) -> None:
    assert PASSWORD not in first.stdout + first.stderr
    files = [Path(folder) / name for folder, _, names in os.walk(project.folder) for name in names]
    assert any(path.name == "run.log" for path in files)
    assert [path for path in files if PASSWORD.encode() in path.read_bytes()] == []
