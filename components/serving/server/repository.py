"""The versions of a served model: a new version is loaded before the old one is unloaded."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from components.pusher.versions import (
    SAVED_MODEL,
    WITHDRAWN_FILE,
    list_versions,
    read_withdrawal,
)
from components.serving.certificate import load_certified
from components.serving.failure_log import FailureLog
from components.serving.model import Servable
from components.serving.requests import MISSING
from components.serving.server.replies import RequestError
from trainer_module.errors import ScopelineError

logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0
FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 5.0, 600.0
"""The pause before a failed version is retried; it doubles from the first to the last."""
_SETTLE_SECONDS = 0.5
"""The seconds for which changed files have to stay unchanged before they are loaded."""
_QUIET_SECONDS = 2.0
"""The seconds without a change after which files count as completely written."""
_ABANDONED_SECONDS = 60.0
"""The seconds after which a folder without a SavedModel counts as complete; its load then fails."""
_JOIN_SECONDS = 0.2
"""The seconds that the shutdown waits for a scan of the folder in progress."""
STABLE = "stable"
"""The label of the served version, which is also the default."""


@dataclass(frozen=True)
class VersionState:
    """The state of a version, and its error."""

    number: int
    state: str
    """START, LOADING, AVAILABLE or END, as in TF Serving."""
    message: str = ""
    """The reason why the version is not served."""


Loader = Callable[[Path], Servable]
Listing = dict[str, tuple[int, int]]
"""The files below a folder, by path: the size in bytes and the modification time in nanoseconds
since 1970."""


@dataclass(frozen=True)
class _Failure:
    """A failed attempt to load a version."""

    listing: Listing
    """The files of the failed attempt; changed files are retried at once."""
    pause: float
    """The seconds after which the same files are retried."""
    due: float
    """The time of the retry, by the monotonic clock."""


class Repository:
    """A folder of versions: serves the highest one that can be loaded and was not withdrawn.

    A loaded version is served until another one is loaded: even if its folder is deleted or
    damaged, or if it is withdrawn and no other version can be loaded.
    """

    def __init__(self, folder: Path, load: Loader = load_certified) -> None:
        self._folder, self._load = folder, load
        self._current: tuple[int, Servable] | None = None
        self._loaded: Listing = {}
        """The files of the served version when it was loaded."""
        self._states: dict[int, VersionState] = {}
        self._failures: dict[int, _Failure] = {}
        self._seen: dict[int, Listing] = {}
        self._is_settling = False
        self._loads = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @classmethod
    def of(cls, model: Servable) -> Repository:
        """Returns a repository of one model, as version 1, which follows no folder."""
        repository = cls(Path(os.devnull))
        repository._activate(1, model, {})
        return repository

    @property
    def states(self) -> list[VersionState]:
        """The states of all known versions, newest first."""
        # Sorting copies the values, which another thread may change meanwhile.
        return sorted(self._states.values(), key=lambda state: -state.number)

    @property
    def failures(self) -> int:
        """The number of versions that could not be loaded."""
        return len(self._failures)

    @property
    def number(self) -> int | None:
        """The number of the served version; None while there is none."""
        return self._current[0] if self._current else None

    def find(self, number: str | None = None, label: str | None = None) -> tuple[int, Servable]:
        """Returns the number and the model of the served version, if it matches.

        Raises:
          RequestError: another version is served (status 404), no version is loaded yet (503), or
            the label is unknown (400).
        """
        current = self._current
        if current is None:
            raise RequestError("no version is loaded yet: try again later.", 503)
        if label not in (None, STABLE):
            # Clients of TF Serving match this message.
            raise RequestError(
                f"Unrecognized servable version label: {label}; the only label is {STABLE!r},"
                " the version in service."
            )
        if number is not None and number != str(current[0]):
            raise RequestError(
                f"version {number} is not in service, but version {current[0]} is.", 404
            )
        return current

    def scan(self) -> None:
        """Scans the folder, and loads the newest version that was not withdrawn.

        A failed version is retried when its files have changed, or after a growing pause. A version
        whose files are still being written is skipped; if no version is served yet, the scan waits
        for it for a moment.
        """
        self._is_settling = False
        try:
            versions = {int(path.name): path for path in reversed(list_versions(self._folder))}
            reasons = {number: read_withdrawal(path) for number, path in versions.items()}
        except OSError as error:
            logger.warning("%s cannot be read: %s", self._folder, error)
            return
        self._drop_deleted(versions)
        withdrawn = ""
        for number, path in versions.items():
            reason = reasons[number]
            if reason is not None:
                said = "it was withdrawn" + (f": {reason}" if reason else "")
                withdrawn = self._end_withdrawn(number, said) or withdrawn
            elif self._update_version(number, path):
                return
        if withdrawn:
            self._keep_withdrawn(withdrawn)

    def _drop_deleted(self, versions: Mapping[int, Path]) -> None:
        """Drops the state of deleted versions, except for the served one."""
        for gone in self._states.keys() - {*versions, self.number}:
            del self._states[gone]
        for known in (self._failures, self._seen):
            for gone in known.keys() - versions.keys():
                known.pop(gone)

    def _end_withdrawn(self, number: int, message: str) -> str:
        """Marks a withdrawn version as ended; returns the message if the version is served."""
        self._failures.pop(number, None)
        if number == self.number:
            return message
        self._set_state(number, "END", message)
        return ""

    def _keep_withdrawn(self, message: str) -> None:
        """Continues to serve a withdrawn version, as no other version can be loaded."""
        assert self.number is not None  # noqa: S101 - the served version is the withdrawn one
        message += "; it stays in service, as no other version can be loaded"
        if self._states[self.number].message != message:
            logger.error("version %d: %s", self.number, message)
        self._set_state(self.number, "AVAILABLE", message)

    def _update_version(self, number: int, path: Path) -> bool:
        """Loads a version unless it is served already; returns whether to skip older versions."""
        listing = self._settled_files(number, path)
        answers = number == self.number
        if listing is None:
            return answers
        if answers and listing == self._loaded:
            if self._states[number].message:  # The version was withdrawn or damaged meanwhile.
                self._clear(number)
            return True
        return (self._is_due(number, listing) and self._try_load(number, path, listing)) or answers

    def _settled_files(self, number: int, path: Path) -> Listing | None:
        """Returns the files of a version; None while they are being written.

        Files count as written when they have not changed for a moment. rsync and cp may copy the
        graph last.
        """
        seen = self._seen.get(number)
        listing, quiet = _list_files(path)
        if self.number is None and listing != seen and quiet < _QUIET_SECONDS:
            self._stop.wait(_SETTLE_SECONDS)
            seen = listing
            listing, quiet = _list_files(path)
        self._seen[number] = listing
        is_whole = SAVED_MODEL in listing or quiet >= _ABANDONED_SECONDS
        if is_whole and (listing == seen or quiet >= _QUIET_SECONDS):
            return listing
        self._is_settling = True
        if number != self.number:
            self._set_state(number, "START")
        return None

    def _is_due(self, number: int, listing: Listing) -> bool:
        failure = self._failures.get(number)
        return failure is None or failure.listing != listing or failure.due <= time.monotonic()

    def _try_load(self, number: int, path: Path, listing: Listing) -> bool:
        if number != self.number:
            self._set_state(number, "LOADING")
        logger.info("version %d is loaded", number)
        try:
            model = self._load(path)
            _warm_up(model)
        except Exception as error:  # The old version stays in service after any error.
            words = str(error) if isinstance(error, ScopelineError) else f"{error!r}"
        else:
            self._activate(number, model, listing)
            return True
        self._fail(number, path, listing, words)
        _free_memory()
        return False

    def _activate(self, number: int, model: Servable, listing: Listing) -> None:
        old, self._current, self._loaded = self.number, (number, model), listing
        self._loads += 1
        self._clear(number)
        if old is not None and old != number:
            self._set_state(old, "END")
        logger.info("version %d is in service", number)

    def _clear(self, number: int) -> None:
        """Marks a version as available, without an error."""
        self._failures.pop(number, None)
        self._set_state(number, "AVAILABLE")

    def _fail(self, number: int, path: Path, listing: Listing, message: str) -> None:
        """Records that a version cannot be loaded, unless its files have changed meanwhile."""
        if _list_files(path)[0] != listing:
            self._is_settling = True
            if number != self.number:
                self._set_state(number, "START")
            return
        before = self._failures.get(number)
        pause = FIRST_PAUSE_SECONDS
        if before is not None and before.listing == listing:
            pause = min(2 * before.pause, LAST_PAUSE_SECONDS)
        self._failures[number] = _Failure(listing, pause, time.monotonic() + pause)
        if number == self.number:
            message += "; the model that was loaded before stays in service"
        self._set_state(number, "AVAILABLE" if number == self.number else "END", message)
        logger.error(
            "version %d cannot be loaded: %s (the next try is in %.0f s, or when its files change)",
            number,
            message,
            pause,
        )

    def _set_state(self, number: int, state: str, message: str = "") -> None:
        self._states[number] = VersionState(number, state, message)

    def start(self) -> None:
        """Starts the thread that follows the folder."""
        self._thread = threading.Thread(target=self._watch, name="versions", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        loads, failure_log = (
            self._loads,
            FailureLog(logger, "the check for new versions failed, retrying"),
        )
        while not self._stop.wait(_SETTLE_SECONDS if self._is_settling else POLL_SECONDS):
            with failure_log.suppressed():
                if self._loads != loads:
                    loads = self._loads
                    _free_memory()
                self.scan()

    def stop(self) -> None:
        """Stops following the folder; a load in progress continues."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)

    @property
    def is_watching(self) -> bool:
        """Whether the thread that follows the folder is running."""
        return self._thread is not None and self._thread.is_alive()


def _list_files(version: Path) -> tuple[Listing, float]:
    """Returns the files of a version, and the seconds since the last change to any of them.

    The change time counts, so that files moved or copied with their old modification time are
    recent. The withdrawal marker is not listed. Files that cannot be read are left to the loader.
    """
    listing, changed = {}, 0
    for folder, _, names in os.walk(version):
        for path in (Path(folder), *(Path(folder, name) for name in names)):
            with suppress(OSError):
                found = path.stat()
                changed = max(changed, found.st_ctime_ns)
                if path != Path(folder):
                    place = path.relative_to(version).as_posix()
                    listing[place] = (found.st_size, found.st_mtime_ns)
    listing.pop(WITHDRAWN_FILE, None)
    return listing, time.time() - changed / 1e9 if changed else 0.0


def _free_memory() -> None:
    """Returns the memory of an unloaded version to the system."""
    gc.collect()  # The graph has reference cycles, which would stay for long.
    with suppress(AttributeError):  # C libraries other than glibc return memory unasked.
        ctypes.CDLL(None).malloc_trim(0)


def _warm_up(model: Servable) -> None:
    """Predicts a row of missing values, so that no client waits for the slow first prediction.

    Models of pictures are skipped, as a picture cannot be missing.
    """
    columns = model.interface.columns
    if any(column.picture for column in columns):
        return
    model.predict(
        {
            column.request: np.full(
                (1,) if column.width == 1 else (1, column.width or 1),
                MISSING.get(column.dtype, 0),
                object if column.dtype == "string" else column.dtype,
            )
            for column in columns
        }
    )
