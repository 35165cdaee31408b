"""The versions that answer: a new one is loaded beside the old one, which goes afterwards."""

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
from components.serving.failing import Failing
from components.serving.model import Servable
from components.serving.requests import MISSING
from components.serving.server.replies import RequestError
from trainer_module.errors import ScopelineError

logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0
FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 5.0, 600.0
"""After which a version that cannot be loaded is tried again; the pause doubles up to the last."""
_SETTLE_SECONDS = 0.5
"""For which files that have just changed have to stay as they are before they are loaded."""
_QUIET_SECONDS = 2.0
"""Files that nothing has changed for so long are not being written."""
_ABANDONED_SECONDS = 60.0
"""After which a folder that is still no SavedModel is said to be none."""
_LAST_LOOK_SECONDS = 0.2
"""How long a look at the folder may take that is under way at the end."""
STABLE = "stable"
"""The label of the version that answers where none is named."""


@dataclass(frozen=True)
class VersionState:
    """What is known of a version."""

    number: int
    state: str
    """START, LOADING, AVAILABLE or END, as TF Serving says."""
    message: str = ""
    """Why it does not answer."""


Loader = Callable[[Path], Servable]
Listing = dict[str, tuple[int, int]]
"""Of the files below a folder, by path: the size in bytes, and when each was changed, in
nanoseconds since 1970."""


@dataclass(frozen=True)
class _Failure:
    """That a version could not be loaded."""

    listing: Listing
    """Of the files that could not be: others are tried at once."""
    pause: float
    """Seconds after which the same files are tried again."""
    due: float
    """When that is, by the monotonic clock."""


class Repository:
    """Follows a folder of versions: the highest that can be loaded and was not withdrawn answers.

    One that is loaded answers until another does: also when its folder is deleted or damaged, and
    when it is withdrawn and no other can be loaded.
    """

    def __init__(self, folder: Path, load: Loader = load_certified) -> None:
        self._folder, self._load = folder, load
        self._current: tuple[int, Servable] | None = None
        self._loaded: Listing = {}
        """Of the version that answers, as it was loaded."""
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
        repository._put_in_place(1, model, {})
        return repository

    @property
    def states(self) -> list[VersionState]:
        """Of the versions that were looked at and are there or answer, newest first."""
        # A copy, as requests read them while versions are looked at.
        return sorted(self._states.values(), key=lambda state: -state.number)

    @property
    def failures(self) -> int:
        """Versions that are there and could not be loaded."""
        return len(self._failures)

    @property
    def number(self) -> int | None:
        """Of the version that answers; None while there is none."""
        return self._current[0] if self._current else None

    def find(self, number: str | None = None, label: str | None = None) -> tuple[int, Servable]:
        """Returns a version that answers.

        Raises:
          RequestError: it does not, with status 404; with 503 while none does yet, and 400 for a
            label that there is not.
        """
        current = self._current
        if current is None:
            raise RequestError("no version is loaded yet: come again later.", 503)
        if label not in (None, STABLE):
            # As TF Serving says it, whose clients look for it.
            raise RequestError(
                f"Unrecognized servable version label: {label}; there is {STABLE!r} alone, which is"
                " the version that answers."
            )
        if number is not None and number != str(current[0]):
            raise RequestError(f"version {number} is not served; {current[0]} is.", 404)
        return current

    def look(self) -> None:
        """Looks at the folder, and loads the newest version that was not withdrawn.

        A version that has failed is tried again when its files have changed, and else after a pause
        that grows. One whose files are still being written is left alone; where none answers yet,
        that is waited for for a moment.
        """
        self._is_settling = False
        try:
            versions = {int(path.name): path for path in reversed(list_versions(self._folder))}
            reasons = {number: read_withdrawal(path) for number, path in versions.items()}
        except OSError as error:
            logger.warning("%s cannot be read: %s", self._folder, error)
            return
        self._forget_all_but(versions)
        withdrawn = ""
        for number, path in versions.items():
            reason = reasons[number]
            if reason is not None:
                said = "it was withdrawn" + (f": {reason}" if reason else "")
                withdrawn = self._pass_over(number, said) or withdrawn
            elif self._follow_version(number, path):
                return
        if withdrawn:
            self._keep_withdrawn(withdrawn)

    def _forget_all_but(self, versions: Mapping[int, Path]) -> None:
        """Drops what is known of versions that are gone, but for the one that answers."""
        for gone in self._states.keys() - {*versions, self.number}:
            del self._states[gone]
        for known in (self._failures, self._seen):
            for gone in known.keys() - versions.keys():
                known.pop(gone)

    def _pass_over(self, number: int, said: str) -> str:
        """Leaves out a version that was withdrawn; gives what is said of one that answers."""
        self._failures.pop(number, None)
        if number == self.number:
            return said
        self._tell(number, "END", said)
        return ""

    def _keep_withdrawn(self, said: str) -> None:
        """Lets a version that was withdrawn go on, as it is better than no answer at all."""
        assert self.number is not None  # noqa: S101 - it is the one that is withdrawn
        said += "; it goes on answering, as no other version can be loaded"
        if self._states[self.number].message != said:
            logger.error("version %d: %s", self.number, said)
        self._tell(self.number, "AVAILABLE", said)

    def _follow_version(self, number: int, path: Path) -> bool:
        """Loads a version unless it answers already; whether no older one need be looked at."""
        listing = self._settled(number, path)
        answers = number == self.number
        if listing is None:
            return answers
        if answers and listing == self._loaded:
            if self._states[number].message:  # It was withdrawn or damaged meanwhile.
                self._clear(number)
            return True
        return (self._is_due(number, listing) and self._try(number, path, listing)) or answers

    def _settled(self, number: int, path: Path) -> Listing | None:
        """Returns the files of a version; None while they are being written.

        They are not once nothing has changed for a moment. By rsync and cp the graph may come last.
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
            self._tell(number, "START")
        return None

    def _is_due(self, number: int, listing: Listing) -> bool:
        failure = self._failures.get(number)
        return failure is None or failure.listing != listing or failure.due <= time.monotonic()

    def _try(self, number: int, path: Path, listing: Listing) -> bool:
        if number != self.number:
            self._tell(number, "LOADING")
        logger.info("version %d is loaded", number)
        try:
            model = self._load(path)
            _ask_once(model)
        except Exception as error:  # Whatever is wrong with it, the old one goes on.
            words = str(error) if isinstance(error, ScopelineError) else f"{error!r}"
        else:
            self._put_in_place(number, model, listing)
            return True
        self._fail(number, path, listing, words)
        _free_memory()
        return False

    def _put_in_place(self, number: int, model: Servable, listing: Listing) -> None:
        old, self._current, self._loaded = self.number, (number, model), listing
        self._loads += 1
        self._clear(number)
        if old is not None and old != number:
            self._tell(old, "END")
        logger.info("version %d answers", number)

    def _clear(self, number: int) -> None:
        """Notes that a version answers, and that nothing is wrong with it."""
        self._failures.pop(number, None)
        self._tell(number, "AVAILABLE")

    def _fail(self, number: int, path: Path, listing: Listing, words: str) -> None:
        """Notes that a version cannot be loaded, unless its files have changed meanwhile."""
        if _list_files(path)[0] != listing:
            self._is_settling = True
            if number != self.number:
                self._tell(number, "START")
            return
        before = self._failures.get(number)
        pause = FIRST_PAUSE_SECONDS
        if before is not None and before.listing == listing:
            pause = min(2 * before.pause, LAST_PAUSE_SECONDS)
        self._failures[number] = _Failure(listing, pause, time.monotonic() + pause)
        if number == self.number:
            words += "; what was loaded of it before goes on answering"
        self._tell(number, "AVAILABLE" if number == self.number else "END", words)
        logger.error(
            "version %d does not serve: %s (it is tried again in %.0f s, or when its files change)",
            number,
            words,
            pause,
        )

    def _tell(self, number: int, state: str, message: str = "") -> None:
        self._states[number] = VersionState(number, state, message)

    def start(self) -> None:
        """Follows the folder in a thread of its own."""
        self._thread = threading.Thread(target=self._follow, name="versions", daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        loads, failing = (
            self._loads,
            Failing(logger, "the look at the versions failed, and is tried again"),
        )
        while not self._stop.wait(_SETTLE_SECONDS if self._is_settling else POLL_SECONDS):
            with failing.survived():
                if self._loads != loads:
                    loads = self._loads
                    _free_memory()
                self.look()

    def stop(self) -> None:
        """Follows it no more, unless a version is just being loaded: that goes on."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_LAST_LOOK_SECONDS)

    @property
    def is_following(self) -> bool:
        """Whether its thread still runs."""
        return self._thread is not None and self._thread.is_alive()


def _list_files(version: Path) -> tuple[Listing, float]:
    """Returns the files of a version, and for how many seconds nothing in it has changed.

    A file that was moved or copied here with its old time has changed as well; the mark of a
    withdrawal is none of the version's files. What cannot be read is for the load to tell.
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
    """Gives back what the version before had."""
    gc.collect()  # Its graph is a circle, which Python leaves for long.
    with suppress(AttributeError):  # Other C libraries than glibc do it by themselves.
        ctypes.CDLL(None).malloc_trim(0)


def _ask_once(model: Servable) -> None:
    """Asks for a row without any value, so that no client waits for the first answer.

    Of pictures there is none without a value.
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
