"""Versions without TFX: listing, giving up, deleting."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from components.pusher.versions import list_versions
from pipeline.config.loading import load_config
from pipeline.records.event_log import EventKind
from pipeline.versions.retention import Retention
from tests.support.pipeline_service import DIGITS, ROOT, Service


@pytest.mark.slow
def test_models_are_listed_without_tensorflow(service: Service) -> None:
    assert "no version has been pushed yet" in service.command("models").stdout
    first = service.push("first")
    second = service.push("second")
    unknown = Path(service.layout.serving) / str(second + 10)
    unknown.mkdir()

    script = (
        "import sys, local_runner\n"
        "sys.argv = sys.argv[1:]\n"
        "try: local_runner.main()\n"
        "finally: print(sorted({'tensorflow', 'tfx', 'ml_metadata'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "scopeline", "models", "--output", str(service.output)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        env={**os.environ, "COLUMNS": "100"},
    )
    assert done.returncode == 0, done.stderr
    header, newest, why, *others, imported = done.stdout.splitlines()
    assert header.split() == ["version", "pushed", "state", "kind", "strategy", "metrics"]
    assert newest.startswith(str(unknown.name))
    assert newest.endswith("damaged")
    assert re.fullmatch(r"saved_model.pb is .*; not pushed by this pipeline", why.strip())
    assert [line.split()[0] for line in others] == [str(second), str(first)]
    assert "2026-01-05" in others[0]
    assert "tabular  strategy of second  accuracy 0.5" in others[0]
    assert imported == "[]"


@pytest.mark.slow
def test_version_is_withdrawn_unless_it_serves(service: Service) -> None:
    first, second = service.push("first"), service.push("second")
    refused = service.command("models", "--withdraw", str(second))
    assert refused.returncode == 2
    assert f"--withdraw {second}: this model is in service; `" in refused.stderr
    assert re.search(r"local_runner\.py rollback --output \S+` puts", refused.stderr)
    assert "this version does not exist" in service.command("models", "--withdraw", "7").stderr
    assert service.marks() == {"first": 0, "second": 0}

    done = service.command("models", "--withdraw", str(first), "--reason", "leaked test data")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"version {first} was withdrawn: leaked test data\n"
    assert service.marks() == {"first": 1, "second": 0}
    updated = service.model("first").last_update_time_since_epoch
    again = service.command("models", "--withdraw", str(first))
    assert again.stdout == f"version {first} was withdrawn before\n"
    assert service.model("first").last_update_time_since_epoch == updated
    assert len(service.event_log.events(EventKind.WITHDRAWN)) == 1
    serving, left = service.models()
    assert (serving["state"], left["state"]) == ("serves", "withdrawn")
    assert re.fullmatch(r"by `models --withdraw` on \S+ \S+: leaked test data", left["why"])
    assert service.command("rollback").returncode == 2


def test_each_version_is_listed_with_the_reason_for_its_state(service: Service) -> None:
    first, second, third = (service.push(name, kind=None) for name in ("first", "second", "third"))
    service.rollback(first, reason="complaints about " + "long " * 40 + "waits")
    waits = {"version": third + 10, "model": "/m", "exported": "waits"} | dict.fromkeys(
        ("model_id", "model_created")
    )
    (service.layout.root / "waits").mkdir()
    (service.layout.root / "waits" / "saved_model.pb").touch()
    found = {"model_kind": "trees", "metrics": {f"metric_{n}": 0.5 for n in range(9)}}
    service.event_log.record(EventKind.WAITS, "waits", **waits, **found)
    service.event_log.record(EventKind.NOT_BLESSED, "accuracy 0.4 is below 0.9", run="a-run")
    summary = service.layout.run("a-run").summary
    summary.parent.mkdir(parents=True)
    summary.write_text(json.dumps({"training": {"model": "cnn"}}))

    waiting, serving, *withdrawn, oldest = service.models()
    assert (waiting["state"], waiting["kind"]) == ("waits", "trees")
    assert re.match(
        r"not approved yet; `\S+ \S+ approve \d+ --reason TEXT --output /", waiting["why"]
    )
    assert serving["state"] == "serves"
    assert serving["why"].startswith(f"copy of version {first}, by `rollback` on ")
    assert [version["version"] for version in withdrawn] == [third, second]
    for version in withdrawn:
        assert (version["state"], version["kind"]) == ("withdrawn", "cnn")
        assert re.match(r"by `rollback` on \S+ \S+: complaints about", version["why"])
    assert oldest["state"] == "replaced"
    assert oldest["why"] == f"version {serving['version']} is newer"
    for width in (80, 100):
        shown = service.command("models", COLUMNS=str(width)).stdout.splitlines()
        assert max(map(len, shown)) <= width
        assert shown[-1] == "run a-run: the model was not blessed: accuracy 0.4 is below 0.9"


def test_old_versions_are_deleted_but_for_those_to_go_back_to(service: Service) -> None:
    numbers = [service.push(c) for c in ("first", "second", "third", "fourth")]
    foreign = Path(service.layout.serving) / "5"
    foreign.mkdir()
    # To the third: the fourth is withdrawn, and the copy is no other model; neither counts.
    service.rollback()
    config = load_config(DIGITS, ["schedule={cron: 0 3 * * *, keep: {versions: 2}}"])
    # A deletion that was killed.
    abandoned = Path(service.layout.serving) / ".deleted-17"
    abandoned.mkdir()

    kept = config.schedule, config.drift, config.metadata
    retention = Retention(*kept, service.layout, service.event_log)
    (line,) = retention.apply()

    left = [int(path.name) for path in list_versions(Path(service.layout.serving))]
    assert left == [5, *numbers[1:], left[-1]]
    assert service.serving() == "third"
    assert not abandoned.exists()
    assert line.startswith(f"1 version deleted ({numbers[0]}), ")
    event = service.event_log.last(EventKind.DELETED)
    assert event is not None
    assert event.details["versions"] == [numbers[0]]
    assert event.details["bytes"] >= len("first")
    assert retention.apply() == []
