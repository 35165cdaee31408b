"""Sets and releases holds. A hold stops pushes and, if requested, scheduled runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import TypeAdapter, ValidationError

from components.disk import write_atomically
from components.processes.stopping import defer_stop
from pipeline.layout import Layout
from pipeline.lock import make_root
from pipeline.records.event_log import EventKind, EventLog
from trainer_module.errors import ConfigError, TryLaterError
from trainer_module.typed_words import typed_command

WAIT_SECONDS = 30.0
"""The seconds for which setting a hold waits for a push in progress."""


@dataclass(frozen=True)
class Hold:
    """A hold that is in force."""

    reason: str
    since: datetime
    until: datetime | None
    """The time when the hold ends, or None if it lasts until it is released."""
    stops_runs: bool
    """Whether the hold also stops scheduled runs."""

    def has_ended(self, now: datetime) -> bool:
        """Returns whether the hold has ended at a time."""
        return self.until is not None and now >= self.until

    def __str__(self) -> str:
        stopped = "pushes and scheduled runs" if self.stops_runs else "pushes"
        until = "" if self.until is None else f" until {_format_time(self.until)}"
        return f"{stopped} are held since {_format_time(self.since)}{until}: {self.reason}"


_HOLD = TypeAdapter(Hold)


def read_hold(layout: Layout, now: datetime | None = None) -> Hold | None:
    """Returns the hold that is in force for a pipeline, or None.

    Args:
      now: the current time; default: the time of this machine.

    Raises:
      ConfigError: the file of the hold cannot be read.
    """
    hold = _read(layout)
    return None if hold is None or hold.has_ended(now or _now()) else hold


def _read(layout: Layout) -> Hold | None:
    """Returns the last hold, unless it was released; raises as `read_hold` does."""
    try:
        return _HOLD.validate_json(layout.hold.read_bytes(), strict=True)
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        problem = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise ConfigError(
            f"{layout.hold}: this hold cannot be read ({problem}), so nothing is pushed; set a new "
            f"hold with `{typed_command('hold --reason TEXT')}`, or end the hold with "
            f"`{typed_command('release')}`"
        ) from None


def set_hold(
    layout: Layout,
    event_log: EventLog,
    reason: str,
    until: datetime | None = None,
    stops_runs: bool = False,
) -> str:
    """Sets a hold, which replaces an earlier hold.

    The function waits for a push in progress. After the function returns, no push begins.

    Args:
      until: the time when the hold ends.
      stops_runs: whether the hold also stops scheduled runs.

    Returns:
      A description of the hold, and of the hold that it replaces.

    Raises:
      ConfigError: the time has passed, or the file cannot be written.
      TryLaterError: a push in progress takes more than `WAIT_SECONDS`.
    """
    now = _now()
    if until is not None and until <= now:
        raise ConfigError(f"--until {_format_time(until)}: this time has passed; give a later time")
    # Input from a terminal may be invalid UTF-8.
    hold = Hold(reason.encode(errors="replace").decode(), now, until, stops_runs)
    make_root(layout)
    with _explained_errors(layout), pushing(layout):
        earlier = _current_hold(layout, now)
        _write(layout.hold, hold)
    sentence = _record(event_log, hold)
    return sentence if earlier is None else f"{sentence}; the hold before: {earlier}"


@contextmanager
def holding(layout: Layout, event_log: EventLog, reason: str) -> Iterator[Hold]:
    """Sets a hold before the block, and records the hold after the block.

    The caller must be in a block of `pushing`. If the block fails, the earlier hold is restored.

    Raises:
      ConfigError: the file cannot be written.
    """
    earlier = layout.hold.read_bytes() if layout.hold.exists() else None
    hold = Hold(reason, _now(), until=None, stops_runs=False)
    with _explained_errors(layout):
        _write(layout.hold, hold)
    try:
        yield hold
    except BaseException:
        with defer_stop():
            if earlier is None:
                layout.hold.unlink(missing_ok=True)
            else:
                write_atomically(layout.hold, earlier)
        raise
    _record(event_log, hold)


def release_hold(layout: Layout, event_log: EventLog, reason: str | None = None) -> str:
    """Releases the hold of a pipeline, if there is a hold; returns a sentence with the result.

    Raises:
      ConfigError: the file of the hold cannot be deleted.
    """
    try:
        hold = _read(layout)
    except ConfigError:
        pass  # An unreadable hold is in force until its release.
    else:
        if hold is None:
            return "there is no hold"
        if hold.until is not None and hold.has_ended(_now()):
            ended = _format_time(hold.until)
            return f"there is no hold; the last hold ended on {ended}"
    with _explained_errors(layout, "deleted", "it is in force"):
        layout.hold.unlink(missing_ok=True)
    message = "the hold is released" + (f": {reason}" if reason else "")
    event_log.record(EventKind.RELEASED, message, reason=reason)
    return message


@contextmanager
def pushing(layout: Layout) -> Iterator[None]:
    """Locks pushes: no hold is set during the block, which checks for a hold and then pushes.

    Raises:
      TryLaterError: another process holds the lock for more than `WAIT_SECONDS`.
    """
    lock = FileLock(layout.push_lock, timeout=WAIT_SECONDS)
    try:
        lock.acquire()
    except Timeout:
        raise TryLaterError(
            f"{layout.root}: another push has taken more than {WAIT_SECONDS:g} s, so nothing was "
            "changed; repeat the command to wait for that push"
        ) from None
    except NotImplementedError:  # Not every volume of a cluster supports locks.
        yield
        return
    try:
        yield
    finally:
        lock.release()


def _write(path: Path, hold: Hold) -> None:
    """Writes the file of a hold, and replaces an earlier file."""
    write_atomically(path, _HOLD.dump_json(hold, indent=2).decode() + "\n")


@contextmanager
def _explained_errors(
    layout: Layout, action: str = "written", effect: str = "there is no hold"
) -> Iterator[None]:
    """Translates an OSError in the block into a ConfigError."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"{layout.hold}: cannot be {action} ({error.strerror or error}), so {effect}"
        ) from None


def _current_hold(layout: Layout, now: datetime) -> Hold | None:
    """Returns the hold that is in force, or None without a hold, or if the file cannot be read."""
    try:
        return read_hold(layout, now)
    except ConfigError:
        return None


def _record(event_log: EventLog, hold: Hold) -> str:
    """Records a hold in the event log; returns a description of the hold."""
    until = None if hold.until is None else hold.until.isoformat()
    event_log.record(
        EventKind.HELD, str(hold), reason=hold.reason, until=until, stops_runs=hold.stops_runs
    )
    return str(hold)


def _now() -> datetime:
    return datetime.now().astimezone()


def _format_time(moment: datetime) -> str:
    return moment.astimezone().strftime("%Y-%m-%d %H:%M %Z")
