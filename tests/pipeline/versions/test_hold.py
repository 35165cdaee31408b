"""Holds: who is kept from pushing, until when, and where that is seen."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import threading
import time
from datetime import datetime, timedelta

import pytest

from pipeline.records.event_log import EventKind
from pipeline.versions import hold as hold_module
from pipeline.versions import rollback as rollback_module
from pipeline.versions.hold import pushing, read_hold, release_hold, set_hold
from tests.support.pipeline_service import DIGITS, Service
from trainer_module.errors import ConfigError, TryLaterError

SCHEDULED = ("--set", "schedule={cron: 0 3 * * *}")


def test_hold_is_seen_until_it_is_released(service: Service) -> None:
    service.push("first")
    held = service.command("hold", "--reason", "complaints", "--all")
    assert held.returncode == 0, held.stderr
    said = held.stdout.strip()
    assert said.startswith("digits: pushes and scheduled runs are held since ")
    assert said.endswith(": complaints")
    assert said.removeprefix("digits: ") in service.command("models").stdout
    listed = service.command("schedule", "--config", str(DIGITS), *SCHEDULED, "--list")
    assert "complaints" in listed.stdout, listed.stderr
    again = service.command("hold", "--reason", "audit").stdout
    assert again.endswith(f": audit; the hold before: {said.removeprefix('digits: ')}\n")
    released = service.command("release", "--reason", "mended")
    assert released.stdout == "digits: the hold is released: mended\n"
    assert read_hold(service.layout) is None
    assert release_hold(service.layout, service.event_log) == "there is no hold"
    events = service.event_log.events()
    assert [e.kind for e in events] == [
        EventKind.PUSHED,
        EventKind.HELD,
        EventKind.HELD,
        EventKind.RELEASED,
    ]
    assert events[1].message == said.removeprefix("digits: ")


def test_hold_ends_by_itself(service: Service) -> None:
    ends = datetime.now().astimezone() + timedelta(days=1)
    set_hold(service.layout, service.event_log, "complaints", ends)
    assert read_hold(service.layout) is not None
    assert read_hold(service.layout, ends - timedelta(seconds=1)) is not None
    assert read_hold(service.layout, ends) is None


def test_hold_that_has_ended_is_not_released(service: Service) -> None:
    ended = {"reason": "x", "since": "2026-01-05T00:00+00:00", "until": "2026-01-06T00:00+00:00"}
    service.layout.hold.write_text(json.dumps(ended | {"stops_runs": False}))
    said = release_hold(service.layout, service.event_log)
    assert said.startswith("there is no hold; the last hold ended on 2026-01-0")
    assert service.event_log.events() == []


def test_what_waits_says_what_for_by_now(service: Service) -> None:
    (service.layout.root / "model").mkdir()
    (service.layout.root / "model" / "saved_model.pb").touch()
    told = {"version": 7, "model": "/model", "model_id": 1, "model_created": 2, "exported": "model"}
    service.event_log.record(EventKind.WAITS, "version 7: held back, pushes were held", **told)
    gone = told | {"version": 6, "exported": "gone"}
    service.event_log.record(EventKind.WAITS, "version 6: held back, pushes were held", **gone)
    waits = rf"not approved yet; `.* approve 7 --reason TEXT --output {service.output}` pushes the"
    (model,) = service.models()
    assert re.match(waits, model["reason"])
    listed = "".join(service.command("models").stdout.split())  # The table wraps long paths.
    assert re.search(waits.replace(" ", ""), listed)
    set_hold(service.layout, service.event_log, "migration")
    assert "held back (migration)" in service.command("models").stdout


def test_what_is_wrong_with_a_hold_is_said(service: Service) -> None:
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


def test_hold_that_cannot_be_deleted_stays_in_force(service: Service) -> None:
    (service.layout.hold / "by mistake").mkdir(parents=True)
    with pytest.raises(
        ConfigError, match=r"hold\.json: cannot be deleted \(.+\), so it is in force"
    ):
        release_hold(service.layout, service.event_log)
    assert service.event_log.last(EventKind.RELEASED) is None


def test_hold_waits_for_a_push_that_is_under_way(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[float] = []

    def push() -> None:
        with pushing(service.layout):
            begun.set()
            time.sleep(0.3)
            ended.append(time.monotonic())

    begun = threading.Event()
    thread = threading.Thread(target=push)
    thread.start()
    begun.wait()
    set_hold(service.layout, service.event_log, "complaints")
    assert time.monotonic() > ended[0]
    thread.join()
    monkeypatch.setattr(hold_module, "WAIT_SECONDS", 0.05)
    with pushing(service.layout), pytest.raises(TryLaterError, match="nothing was changed"):
        set_hold(service.layout, service.event_log, "complaints")


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


def test_rollback_that_fails_leaves_the_hold_as_it_was(service: Service) -> None:
    service.push("first")
    with pytest.raises(ConfigError, match="there is no version to go back to"):
        service.rollback(holds=True, reason="complaints")
    assert read_hold(service.layout) is None
    set_hold(service.layout, service.event_log, "migration")
    with pytest.raises(ConfigError, match="there is no version to go back to"):
        service.rollback(holds=True, reason="complaints")
    hold = read_hold(service.layout)
    assert hold is not None
    assert hold.reason == "migration"
    assert len(service.event_log.events(EventKind.HELD)) == 1


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


def test_whoever_pushes_waits_for_who_pushes_already(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a step of Kubeflow does, which has no lock of a run."""
    service.push("first")
    service.push("second")
    monkeypatch.setattr(hold_module, "WAIT_SECONDS", 0.05)
    with pushing(service.layout):
        with pytest.raises(TryLaterError, match=r"has taken more than .* nothing was changed"):
            service.rollback(holds=True, reason="complaints")
        with pytest.raises(TryLaterError, match="nothing was changed"), pushing(service.layout):
            pytest.fail("two push at once")
    assert service.serving() == "second"
    assert read_hold(service.layout) is None


def test_approving_what_does_not_wait_is_refused(service: Service) -> None:
    done = service.command("approve", "7", "--reason", "looks right")
    assert done.returncode == 2
    assert done.stderr == "approve 7: no model waits\n"
