"""Holds: who is kept from pushing, until when, and where that is seen."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from datetime import datetime, timedelta

import pytest

from pipeline.records.event_log import EventKind
from pipeline.versions import hold as hold_module
from pipeline.versions import rollback as rollback_module
from pipeline.versions.hold import pushing, read_hold, release_hold, set_hold
from tests.support.pipeline_service import Service
from trainer_module.errors import ConfigError, TryLaterError


def test_hold_is_seen_until_it_is_released(service: Service) -> None:
    service.push("first")
    held = service.command("hold", "--reason", "complaints", "--all")
    assert held.returncode == 0, held.stderr
    shown = held.stdout.strip()
    assert shown.startswith("digits: pushes and scheduled runs are held since ")
    assert shown.endswith(": complaints")
    assert shown.removeprefix("digits: ") in service.command("models").stdout
    released = service.command("release", "--reason", "mended")
    assert released.stdout == "digits: the hold is released: mended\n"
    assert read_hold(service.layout) is None
    assert release_hold(service.layout, service.event_log) == "there is no hold"
    events = service.event_log.events()
    assert [e.kind for e in events] == [EventKind.PUSHED, EventKind.HELD, EventKind.RELEASED]
    assert events[1].message == shown.removeprefix("digits: ")


def test_hold_ends_by_itself(service: Service) -> None:
    ends = datetime.now().astimezone() + timedelta(days=1)
    set_hold(service.layout, service.event_log, "complaints", ends)
    assert read_hold(service.layout) is not None
    assert read_hold(service.layout, ends - timedelta(seconds=1)) is not None
    assert read_hold(service.layout, ends) is None


def test_invalid_hold_is_refused(service: Service) -> None:
    past = service.command("hold", "--reason", "x", "--until", "2020-01-05")
    assert past.returncode == 2
    assert past.stderr.startswith("--until 2020-01-05 00:00")
    assert "this time has passed" in past.stderr
    odd = service.command("hold", "--reason", "x", "--until", "tomorrow")
    assert odd.stderr.startswith("--until tomorrow: not a time; give 2026-01-05")
    assert service.command("hold").returncode == 2, "nobody says why"
    assert not service.layout.hold.exists()
    for damaged in (
        '{"reason": "half',
        '{"reason": "no more", "since": "2026-01-05T00:00:00Z", "until": null}',
        '{"reason": "x", "since": "2026-01-05T00:00:00Z", "until": 5, "stops_runs": false}',
    ):
        service.layout.hold.write_text(damaged)
        with pytest.raises(
            ConfigError, match=r"hold\.json: this hold cannot be read .* with `scopeline release "
        ):
            read_hold(service.layout)
    release_hold(service.layout, service.event_log)
    assert read_hold(service.layout) is None


def test_rollback_holds_in_one_step(service: Service) -> None:
    first, second = service.push("first"), service.push("second")
    wordless = service.command("rollback", "--hold")
    assert wordless.returncode == 2
    assert wordless.stderr.startswith("--hold: add --reason TEXT")
    assert service.serving() == "second"
    done = service.command("rollback", "--hold", "--reason", "complaints")
    assert done.returncode == 0, done.stderr
    withdrawn, serves, held, follows = done.stdout.splitlines()
    assert withdrawn == f"version {second} was withdrawn: complaints"
    assert serves.endswith(f"a copy of version {first}")
    assert held.startswith("pushes are held since ")
    assert follows.startswith(f"servers of {service.layout.serving} load this version")
    assert service.serving() == "first"
    assert read_hold(service.layout) is not None


def test_rollback_that_is_killed_after_its_copy_holds(service: Service) -> None:
    service.push("first")
    service.push("second")

    def killed(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def roll_back() -> None:
        rollback_module._finish = killed
        service.rollback(holds=True, reason="complaints")

    process = multiprocessing.get_context("fork").Process(target=roll_back)
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert service.serving() == "first"
    assert read_hold(service.layout) is not None


def test_approving_an_unknown_version_is_refused(service: Service) -> None:
    done = service.command("approve", "7", "--reason", "looks right")
    assert done.returncode == 2
    assert done.stderr == "approve 7: no model waits\n"


def test_hold_waits_for_a_push_that_is_in_progress(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    begun = threading.Event()

    def push() -> None:
        with pushing(service.layout):
            begun.set()
            time.sleep(0.3)
            order.append("pushed")

    thread = threading.Thread(target=push)
    thread.start()
    begun.wait()
    set_hold(service.layout, service.event_log, "complaints")
    order.append("held")
    thread.join()
    assert order == ["pushed", "held"]
    monkeypatch.setattr(hold_module, "WAIT_SECONDS", 0.05)
    with pushing(service.layout), pytest.raises(TryLaterError):
        set_hold(service.layout, service.event_log, "complaints")
