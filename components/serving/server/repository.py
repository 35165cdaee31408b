"""The versions of a served model. A new version is loaded before the old version is unloaded."""

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

from components.example_gen.columns.tensors import MISSING
from components.pusher.versions import (
    SAVED_MODEL,
    WITHDRAWN_FILE,
    list_versions,
    read_withdrawal,
)
from components.serving.certificate import load_certified
from components.serving.failure_log import FailureLog
from components.serving.model import Servable
from components.serving.server.replies import RequestError
from trainer_module.errors import ScopelineError

logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 5.0, 600.0
"""The shortest and the longest pause before a failed version is retried. The pause doubles with
each failure."""
_SETTLE_SECONDS = 0.5
"""The seconds for which changed files have to stay unchanged before they are loaded."""
_QUIET_SECONDS = 2.0
"""The seconds without a change after which files count as completely written."""
_ABANDONED_SECONDS = 60.0
"""The seconds after which a folder without a SavedModel counts as complete, so that its load fails
with a message."""
_JOIN_SECONDS = 0.2
"""The seconds for which the shutdown waits for a scan in progress."""
STABLE = "stable"
"""The label of the served version."""


@dataclass(frozen=True)
class VersionState:
    """The state of a version."""

    number: int
    state: str
    """START, LOADING, AVAILABLE or END, as in TF Serving."""
    message: str = ""
    """The error of the version: that it cannot be loaded, or was withdrawn. Empty for no error."""


Loader = Callable[[Path], Servable]
Listing = dict[str, tuple[int, int]]
"""The files below a folder, by path: the size in bytes and the modification time in nanoseconds
since 1970."""


@dataclass(frozen=True)
class _Failure:
    """A failed attempt to load a version."""

    listing: Listing
    """The files of the failed attempt; changed files are retried immediately."""
    pause: float
    """The seconds after which the same files are retried."""
    due: float
    """The time of the retry, by the monotonic clock."""


class Repository:
    """A folder of versions, of which the newest usable version is served.

    A version is usable if it can be loaded and was not withdrawn. A loaded version is served until
    another version is loaded. It remains in service even if its folder is deleted or damaged, or if
    it is withdrawn and no other version can be loaded.
    """

    def __init__(
        self, folder: Path, load: Loader = load_certified, version: int | None = None
    ) -> None:
        """Creates a repository that has loaded no version yet.

        Args:
          version: the only version that is served, even if it was withdrawn; None for the newest.
        """
        self._folder, self._load, self._version = folder, load, version
        self._current: tuple[int, Servable] | None = None
        self._loaded: Listing = {}
        """The files of the served version when it was loaded."""
        self._states: dict[int, VersionState] = {}
        self._failures: dict[int, _Failure] = {}
        self._last_listings: dict[int, Listing] = {}
        """The files of each version at the last scan."""
        self._is_settling = False
        self._loads = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @classmethod
    def of(cls, model: Servable) -> Repository:
        """Returns a repository of one model, which is version 1. No folder is watched."""
        repository = cls(Path(os.devnull))
        repository._activate(1, model, {})
        return repository

    @property
    def states(self) -> list[VersionState]:
        """The states of all known versions, newest first."""
        # Sorting copies the values, as another thread may change the dictionary.
        return sorted(self._states.values(), key=lambda state: -state.number)

    @property
    def failures(self) -> int:
        """The number of versions that could not be loaded."""
        return len(self._failures)

    @property
    def number(self) -> int | None:
        """The number of the served version, or None while no version is served."""
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
        whose files are still being written is skipped. If no version is served yet, the scan first
        waits half a second for the files.
        """
        self._is_settling = False
        try:
            versions = {int(path.name): path for path in reversed(list_versions(self._folder))}
            if self._version is not None:
                versions = {n: path for n, path in versions.items() if n == self._version}
            reasons = {number: read_withdrawal(path) for number, path in versions.items()}
        except OSError as error:
            logger.warning("%s cannot be read: %s", self._folder, error)
            return
        self._drop_deleted(versions)
        withdrawn = ""
        for number, path in versions.items():
            reason = reasons[number]
            if reason is not None and self._version is None:
                message = "it was withdrawn" + (f": {reason}" if reason else "")
                withdrawn = self._end_withdrawn(number, message) or withdrawn
            elif self._update_version(number, path):
                return
        if withdrawn:
            self._keep_withdrawn(withdrawn)

    def _drop_deleted(self, versions: Mapping[int, Path]) -> None:
        """Drops the state of deleted versions, except for the served one."""
        for number in self._states.keys() - {*versions, self.number}:
            del self._states[number]
        for records in (self._failures, self._last_listings):
            for number in records.keys() - versions.keys():
                records.pop(number)

    def _end_withdrawn(self, number: int, message: str) -> str:
        """Marks a withdrawn version as ended, unless the version is served.

        Returns:
          The message if the version is served, or else an empty string.
        """
        self._failures.pop(number, None)
        if number == self.number:
            return message
        self._set_state(number, "END", message)
        return ""

    def _keep_withdrawn(self, message: str) -> None:
        """Continues to serve a withdrawn version, as no other version can be loaded."""
        assert self.number is not None  # noqa: S101 - the served version is the withdrawn one
        message += "; the version remains in service, as no other version can be loaded"
        if self._states[self.number].message != message:
            logger.error("version %d: %s", self.number, message)
        self._set_state(self.number, "AVAILABLE", message)

    def _update_version(self, number: int, path: Path) -> bool:
        """Loads a version unless it is served already.

        Returns:
          Whether the version is served, so that older versions can be skipped.
        """
        listing = self._settled_files(number, path)
        is_served = number == self.number
        if listing is None:
            return is_served
        if is_served and listing == self._loaded:
            if self._states[number].message:  # An error of the version was fixed, such as damage.
                self._clear(number)
            return True
        is_loaded = self._is_due(number, listing) and self._try_load(number, path, listing)
        return is_loaded or is_served

    def _settled_files(self, number: int, path: Path) -> Listing | None:
        """Returns the files of a version, or None while they are being written.

        The files count as complete if they are unchanged since the last scan or for 2 seconds, and
        `saved_model.pb` exists, which rsync and cp may copy last.
        """
        last = self._last_listings.get(number)
        listing, unchanged_seconds = _list_files(path)
        if self.number is None and listing != last and unchanged_seconds < _QUIET_SECONDS:
            self._stop.wait(_SETTLE_SECONDS)
            last = listing
            listing, unchanged_seconds = _list_files(path)
        self._last_listings[number] = listing
        is_complete = SAVED_MODEL in listing or unchanged_seconds >= _ABANDONED_SECONDS
        if is_complete and (listing == last or unchanged_seconds >= _QUIET_SECONDS):
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
        logger.info("version %d is being loaded", number)
        try:
            model = self._load(path)
            _warm_up(model)
        except Exception as error:  # The old version remains in service after any error.
            message = str(error) if isinstance(error, ScopelineError) else f"{error!r}"
        else:
            self._activate(number, model, listing)
            return True
        self._fail(number, path, listing, message)
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
        """Records that a version cannot be loaded, unless its files changed during the load."""
        if _list_files(path)[0] != listing:
            self._is_settling = True
            if number != self.number:
                self._set_state(number, "START")
            return
        previous = self._failures.get(number)
        pause = MIN_PAUSE_SECONDS
        if previous is not None and previous.listing == listing:
            pause = min(2 * previous.pause, MAX_PAUSE_SECONDS)
        self._failures[number] = _Failure(listing, pause, time.monotonic() + pause)
        if number == self.number:
            message += "; the model that was loaded before remains in service"
        self._set_state(number, "AVAILABLE" if number == self.number else "END", message)
        logger.error(
            "version %d cannot be loaded: %s (the load is retried in %.0f s, or when the files"
            " change)",
            number,
            message,
            pause,
        )

    def _set_state(self, number: int, state: str, message: str = "") -> None:
        self._states[number] = VersionState(number, state, message)

    def start(self) -> None:
        """Starts the thread that watches the folder."""
        self._thread = threading.Thread(target=self._watch, name="versions", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        loads = self._loads
        failure_log = FailureLog(logger, "the check for new versions failed, retrying")
        while not self._stop.wait(_SETTLE_SECONDS if self._is_settling else POLL_SECONDS):
            with failure_log.suppressed():
                if self._loads != loads:
                    loads = self._loads
                    _free_memory()
                self.scan()

    def stop(self) -> None:
        """Stops watching the folder. A load in progress continues."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)

    @property
    def is_watching(self) -> bool:
        """Whether the thread that watches the folder is running."""
        return self._thread is not None and self._thread.is_alive()


def _list_files(version: Path) -> tuple[Listing, float]:
    """Returns the files of a version, and the seconds since the last change to any of them.

    The last change is the latest ctime, as moved or copied files may keep an old modification time.
    The withdrawal marker is not listed. Files that cannot be read are skipped: the load fails.
    """
    listing, changed = {}, 0
    for folder, _, names in os.walk(version):
        for path in (Path(folder), *(Path(folder, name) for name in names)):
            with suppress(OSError):
                status = path.stat()
                changed = max(changed, status.st_ctime_ns)
                if path != Path(folder):
                    name = path.relative_to(version).as_posix()
                    listing[name] = (status.st_size, status.st_mtime_ns)
    listing.pop(WITHDRAWN_FILE, None)
    return listing, time.time() - changed / 1e9 if changed else 0.0


def _free_memory() -> None:
    """Returns the memory of an unloaded version to the system."""
    gc.collect()  # The graph has reference cycles, which garbage collection would free much later.
    with suppress(AttributeError):  # C libraries other than glibc have no malloc_trim.
        ctypes.CDLL(None).malloc_trim(0)


def _warm_up(model: Servable) -> None:
    """Predicts a row of missing values, so that no client waits for the slow first prediction.

    Models that take pictures are not warmed up, as a picture cannot be missing.
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
