"""Going back to a version: what serves then, what is withdrawn, and kills in between."""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline.lock import run_lock
from pipeline.records.event_log import EventKind
from pipeline.versions.hold import read_hold
from tests.support import warm
from tests.support.pipeline_service import ROOT, Service
from trainer_module.errors import ConfigError


def test_rollback_serves_a_copy_of_the_version_before(service: Service) -> None:
    first, second, third = (service.push(c) for c in ("first", "second", "third"))
    done = service.command("rollback", "--reason", "wrong labels")
    assert done.returncode == 0, done.stderr
    new, *old = service.models()
    assert done.stdout.splitlines() == [
        f"version {third} was withdrawn: wrong labels",
        f"version {new['version']} is in service, a copy of version {second}",
        f"servers of {service.layout.serving} load this version within seconds; their"
        " /v1/models/digits shows the loaded version",
    ]
    assert service.serving() == "second"
    assert (new["serves"], new["copy_of"], new["withdrawn"]) == (True, second, False)
    assert new["strategy"] == "strategy of second"
    assert [v["version"] for v in old] == [third, second, first]
    assert [(v["serves"], v["withdrawn"]) for v in old] == [
        (False, True),
        (False, False),
        (False, False),
    ]
    assert old[0]["reason"] == "wrong labels"
    assert service.marks() == {"first": 0, "second": 0, "third": 1}
    event = service.event_log.last(EventKind.ROLLED_BACK)
    assert event is not None
    assert event.details["version"] == new["version"]
    assert "wrong labels" in event.message

    # Once more: not to the second, which serves, nor to the third, but further back.
    assert service.command("rollback").returncode == 0
    assert service.serving() == "first"
    assert service.marks() == {"first": 0, "second": 1, "third": 1}
    again = service.command("rollback")
    assert again.returncode == 2
    assert "there is no version to go back to: there are " in again.stderr
    assert service.serving() == "first"


def test_rollback_to_a_version_withdraws_all_after_it(service: Service) -> None:
    first, second, third = (service.push(c) for c in ("first", "second", "third"))
    service.rollback(to=first)
    assert service.serving() == "first"
    assert service.marks() == {"first": 0, "second": 1, "third": 1}
    before = service.count()
    (shown,) = service.rollback(to=first)
    assert "serves this model already" in shown
    assert service.count() == before

    with pytest.raises(ConfigError, match=r"was withdrawn; --force") as caught:
        service.rollback(to=third)
    assert f"{second} (withdrawn)" in str(caught.value)
    assert service.count() == before
    # A rollback by mistake is taken back; what it went to was a good version and stays one.
    service.rollback(to=third, force=True)
    assert service.serving() == "third"
    assert service.marks() == {"first": 0, "second": 1, "third": 0}
    states = {v["version"]: v["withdrawn"] for v in service.models()}
    assert [number for number, withdrawn in states.items() if withdrawn] == [second]


def test_invalid_rollback_is_refused(service: Service) -> None:
    none = service.command("rollback")
    assert none.returncode == 2
    assert "no version has been pushed yet" in none.stderr
    first, second = service.push("first"), service.push("second")
    unknown = service.command("rollback", "--to", "7")
    assert unknown.returncode == 2
    assert f"--to 7: this version does not exist; there are {second}, {first}" in unknown.stderr
    remote = service.command("rollback", "--set", "push.directory=gs://bucket/models")
    assert remote.returncode == 2
    assert "gs://bucket/models is not a folder of this machine" in remote.stderr
    with run_lock(service.layout):
        locked = service.command("rollback")
    assert locked.returncode == 75
    assert "is under way" in locked.stderr
    assert service.serving() == "second"
    assert service.count() == 2


def test_full_disk_leaves_the_old_version_in_service(service: Service) -> None:
    first = service.push("first")
    variables = Path(service.layout.serving) / str(first) / "variables"
    variables.write_bytes(bytes(2048))
    service.push("second")
    script = (
        "import resource, signal, sys\n"
        "import ml_metadata\n"
        "import local_runner\n"
        "from pipeline.versions import rollback\n"
        "copy = rollback._copy\n"
        "def on_full_disk(*arguments):\n"
        "    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))\n"
        "    return copy(*arguments)\n"
        "rollback._copy = on_full_disk\n"
        "sys.argv = sys.argv[1:]\n"
        "local_runner.main()\n"
    )
    done = warm.run(
        [sys.executable, "-c", script, "scopeline", "rollback", "--output", str(service.output)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )
    assert done.returncode == 2
    assert f"version {first} cannot be copied (" in done.stderr
    assert "/variables: File too large; the model needs " in done.stderr
    assert "the version in service has not changed" in done.stderr
    assert "Traceback" not in done.stderr
    assert service.serving() == "second"
    assert len(list(Path(service.layout.serving).iterdir())) == 2
    service.rollback()
    assert service.serving() == "first"


def test_stop_in_the_copy_leaves_the_old_version_in_service(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = service.push("first"), service.push("second")
    copy = shutil.copytree

    def interrupted(*given: Any, **options: Any) -> None:
        copy(*given, **options)
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copytree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            service.rollback(holds=True, reason="complaints")
    assert service.serving() == "second"
    assert service.marks() == {"first": 0, "second": 0}
    assert read_hold(service.layout) is None
    assert [v["version"] for v in service.models()] == [second, first]
    service.rollback()
    assert service.serving() == "first"


@pytest.mark.parametrize(
    ("place", "serves", "to"),
    [
        ("rollback.mark_models", "third", False),
        ("rollback._copy", "third", True),
        ("rollback.record_withdrawn", "second", False),
        ("rollback.EventLog.record", "second", True),
    ],
)
def test_killed_rollback_is_finished_by_the_same_command(
    service: Service, place: str, serves: str, to: bool
) -> None:
    second = [service.push(c) for c in ("first", "second", "third")][1]
    arguments = ["rollback", *(["--to", str(second)] if to else [])]
    script = (
        "import os, signal, sys\n"
        "import local_runner\n"
        "from pipeline.versions import rollback\n"
        f"owner, name = {place.rpartition('.')[0]}, {place.rpartition('.')[2]!r}\n"
        "original = getattr(owner, name)\n"
        "def killed(*arguments, **details):\n"
        "    if name != 'record' or arguments[1] == 'rolled back':\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return original(*arguments, **details)\n"
        "setattr(owner, name, killed)\n"
        "sys.argv = sys.argv[1:]\n"
        "local_runner.main()\n"
    )
    done = warm.run(
        [sys.executable, "-c", script, "scopeline", *arguments, "--output", str(service.output)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )
    assert done.returncode == -9, done.stderr
    assert service.serving() == serves

    finished = service.command(*arguments)
    assert finished.returncode == 0, finished.stderr
    assert service.serving() == "second"
    assert service.count() == 4
    assert service.marks() == {"first": 0, "second": 0, "third": 1}
    assert len(service.event_log.events(EventKind.ROLLED_BACK)) == 1
    assert len(service.event_log.events(EventKind.WITHDRAWN)) == 1
