"""The versions that answer: a new one is loaded beside the old one, which goes afterwards."""

from __future__ import annotations

import ctypes
import gc
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from components.pusher.versions import list_versions
from pipeline.serving.certificate.checking import load_certified
from pipeline.serving.requests import MISSING
from pipeline.serving.servable import Servable
from pipeline.serving.server.errors import Failing, RequestError
from trainer_module.errors import ScopelineError

logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0
_LAST_LOOK_SECONDS = 0.2
"""How long a look at the folder may take that is under way at the end."""
STABLE = "stable"
"""The label of the version that answers where none is named."""


@dataclass(frozen=True)
class VersionState:
    """What has become of a version."""

    number: int
    state: str
    """START, LOADING, AVAILABLE or END, as TF Serving says."""
    message: str = ""
    """Why it does not answer."""


Loader = Callable[[Path], Servable]


class Repository:
    """Follows a folder of versions: the highest that can be loaded answers."""

    def __init__(self, folder: Path, load: Loader = load_certified) -> None:
        self._folder, self._load = folder, load
        self._current: tuple[int, Servable] | None = None
        self._states: Mapping[int, VersionState] = {}
        """Read by other threads: a change is another mapping."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def states(self) -> list[VersionState]:
        """Of all versions that were looked at, newest first."""
        return sorted(self._states.values(), key=lambda state: -state.number)

    @property
    def failures(self) -> int:
        """Versions that could not be loaded."""
        return sum(bool(state.message) for state in self._states.values())

    @property
    def number(self) -> int | None:
        """Of the version that answers; None while there is none."""
        return self._current[0] if self._current else None

    def find(self, number: str | None = None, label: str | None = None) -> tuple[int, Servable]:
        """A version that answers.

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
        """Looks at the folder, and loads the newest version if it does not answer yet.

        A version that has failed is not tried again. Where one is a SavedModel itself, it answers.
        """
        for number, path in self._candidates():
            state = self._states.get(number)
            if state is not None and state.message:
                continue
            if self.number == number or self._try(number, path):
                return

    def _candidates(self) -> list[tuple[int, Path]]:
        try:
            versions = list_versions(self._folder)
        except OSError as error:
            logger.warning("%s cannot be read: %s", self._folder, error)
            return []
        return [(int(path.name), path) for path in reversed(versions)]

    def _try(self, number: int, path: Path) -> bool:
        self._note(VersionState(number, "LOADING"))
        logger.info("version %d is loaded", number)
        try:
            model = self._load(path)
            _ask_once(model)
        except Exception as error:  # Whatever is wrong with it, the old one goes on.
            words = str(error) if isinstance(error, ScopelineError) else f"{error!r}"
            if not path.exists():
                self._states = {n: s for n, s in self._states.items() if n != number}
                return False
            self._note(VersionState(number, "END", words))
            logger.error("version %d does not serve: %s", number, words)
            return False
        old, self._current = self._current, (number, model)
        self._note(VersionState(number, "AVAILABLE"))
        if old is not None:
            self._note(VersionState(old[0], "END"))
        logger.info("version %d answers", number)
        return True

    def _note(self, state: VersionState) -> None:
        self._states = {**self._states, state.number: state}

    def start(self) -> None:
        """Follows the folder in a thread of its own."""
        self._thread = threading.Thread(target=self._follow, name="versions", daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        before, failing = self.number, Failing("the look at the versions")
        while not self._stop.wait(POLL_SECONDS):
            with failing.survived():
                if self.number != before:
                    before = self.number
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
