"""What the last run came to, kept so that one which would only repeat it need not begin."""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ValidationError

from components.disk import write_whole
from components.example_gen.paths import is_remote
from pipeline.config.user_code import files_fingerprint, own_sources
from pipeline.data.ingestion import curated_schema, pictures_revision
from pipeline.graph.cache_keys import files_read
from pipeline.own_modules import PACKAGES, ROOT
from pipeline.records.event_log import EventKind, EventLog
from pipeline.records.summary import RunSummary, Status
from pipeline.run_context import RunContext
from pipeline.runs.console import shown
from pipeline.versions.retention import find_expired
from trainer_module.strategies.tpu import NAME_VARIABLE

logger = logging.getLogger(__name__)

FINAL = (Status.PUSHED, Status.NOT_BLESSED)
"""How a run ends that nobody has to do anything about, and no time that passes changes."""
FORMAT = 1
"""Of the file; a change of what is compared needs no other, as the code is compared as well."""


Facts = dict[str, str]
"""Stamps, by what people call the thing."""
_PREFIXES = ("CUDA_", "KERAS_", "NVIDIA_", "OMP_", "TF_", "TFX_", "XLA_")
_VARIABLES = ("LD_LIBRARY_PATH", "PYTHONHASHSEED", NAME_VARIABLE)
"""What components, and the libraries that they call, read from the environment."""

_ONLY_TOLD = {
    EventKind.SKIPPED,
    EventKind.SKEW_CHECKED,
    EventKind.SKEW,
    EventKind.CLOCK_SET_BACK,
    EventKind.RECOVERED,
    EventKind.STALE,
    EventKind.LEFT_OUT,
    EventKind.NOTIFICATION_FAILED,
}
"""Events that no run looks at."""


class LastRun(BaseModel):
    """A run whose outcome was final, and everything that another would decide by."""

    format: int = FORMAT
    run: str
    ended: datetime
    status: Status
    pushed: str | None
    reason: str | None
    given: Facts
    left: Facts

    @property
    def exit_code(self) -> int:
        """That of a run that would repeat it."""
        return self.status.exit_code

    def __str__(self) -> str:
        """What a run that would repeat it says."""
        ended = self.ended.astimezone().strftime("%Y-%m-%d %H:%M:%S")
        if self.status is Status.PUSHED:
            came_to = f"whose model is {shown(self.pushed or '')}"
        else:
            came_to = f"which pushed nothing: {self.reason}"
        return (
            f"nothing has changed since run {self.run}, which ended {ended}, {came_to}; "
            "`run --force` runs all the same"
        )


class Reruns:
    """Says before a run whether it would repeat the last one; writes down after it what it left."""

    def __init__(self, context: RunContext) -> None:
        """Looks at what the run is given."""
        self._context = context
        self._file = context.layout.last_run
        self._changes = ""
        try:
            self._given = given_to(context)
        except OSError as error:
            logger.info("Whether anything has changed cannot be told: %s", error)
            self._given = None

    def repeated(self) -> LastRun | None:
        """Returns the last run, if this one would only repeat it."""
        try:
            last = LastRun.model_validate_json(self._file.read_text())
            left = left_by(self._context, last.run)
        except (OSError, ValidationError):
            return None  # There is none, or another version of Scopeline has written it.
        if self._given is None or left is None or last.format != FORMAT:
            return None
        changed = [*_differences(last.given, self._given), *_differences(last.left, left)]
        self._changes = f"Changed since run {last.run}: {', '.join(changed)}"
        return None if changed else last

    def forget(self) -> None:
        """A run begins: until it has ended well, there is no outcome to repeat."""
        if self._changes:
            logger.info("%s", self._changes)
        self._file.unlink(missing_ok=True)

    def keep(self, summary: RunSummary, would_run: Callable[[], bool]) -> None:
        """Writes down what a run has come to, if another now would do nothing.

        A failure is no reason for a run to fail: the next one then runs.

        Args:
          summary: of the run, which has ended.
          would_run: whether a component would run now.
        """
        context = self._context
        if self._given is None or summary.status not in FINAL:
            return
        try:
            event_log = EventLog(context.layout.event_log)
            if find_expired(context.config.schedule, context.layout, event_log) or would_run():
                logger.info("The next run has something to do, though nothing changes")
                return
            left = left_by(context, summary.run_id)
            if left is None:
                return
            last = LastRun(
                run=summary.run_id,
                ended=datetime.now().astimezone(),
                status=summary.status,
                pushed=summary.pushed,
                reason=summary.reason,
                given=self._given,
                left=left,
            )
            write_whole(self._file, last.model_dump_json(indent=2) + "\n")
        except Exception:
            logger.exception("What the run has come to could not be kept for the next one")


def _differences(before: Facts, now: Facts) -> list[str]:
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def given_to(context: RunContext) -> Facts | None:
    """What a run is given; read before it begins: what changes meanwhile is new to the next.

    Returns:
      None where that cannot be told, as something is not on this machine.

    Raises:
      OSError: something of it cannot be looked at.
    """
    config, layout = context.config, context.layout
    curated = curated_schema(config.schema_file, layout)
    if config.metadata is not None or (curated is not None and is_remote(curated)):
        return None
    lock = ROOT / "uv.lock"
    window = context.window
    return {
        "the folder": stamp_of(layout, Path.cwd()),
        # Some settings count as left out, or not, though they have the same values.
        "the config": stamp_of(
            config.model_dump_json(), config.model_dump_json(exclude_unset=True)
        ),
        "Scopeline's code": files_fingerprint(
            source for name in PACKAGES for source in sorted((ROOT / name).rglob("*.py"))
        ),
        "code that the config names": stamp_of_files(own_sources(config.own_code.values())),
        "files that the config names": stamp_of_files(
            [*files_read(config.trainer_settings), *([Path(curated)] if curated else [])]
        ),
        "packages": stamp_of(stamp_of_packages(), stamp_of_files([lock])),
        "the environment": stamp_of_environment(os.environ, _PREFIXES, _VARIABLES),
        "the data": stamp_of(
            [(span.number, span.signature) for span in context.data],
            [(span.number, span.signature) for span in window.empty] if window else [],
        ),
        "pictures": pictures_revision(config.data, context.reading.pictures, layout),
    }


def left_by(context: RunContext, run: str) -> Facts | None:
    """What the pipeline's last run has left, as it is now.

    Args:
      context: of the run.
      run: the last run's id.

    Returns:
      None where nothing was written down of it.

    Raises:
      OSError: something of it cannot be looked at.
    """
    layout = context.layout
    event_log = EventLog(layout.event_log)
    last = event_log.last(*(kind for kind in EventKind if kind not in _ONLY_TOLD))
    if last is None:
        return None
    # Beside the file are those of a transaction that did not end.
    metadata = sorted(layout.root.glob(f"{layout.metadata.name}*"))
    served = [] if is_remote(layout.serving) else [Path(layout.serving)]
    return {
        "the history": stamp_of(last.id, last.at.isoformat(), last.kind.value, last.run),
        "the metadata": stamp_of_files(metadata),
        "artifacts": stamp_of_files([layout.pipeline_root]),
        "versions": stamp_of_files(served),
        "the kept schema": stamp_of_files([layout.schema]),
        "the summary": stamp_of_files([layout.run(run).summary]),
    }


def stamp_of(*values: object) -> str:
    """Changes with values, as they are written in Python."""
    return hashlib.sha256(repr(values).encode(errors="replace")).hexdigest()[:16]


def stamp_of_files(paths: Iterable[Path]) -> str:
    """Changes with the names, sizes and times of files and of all that is below folders.

    Hidden files count. Of a folder only the name does, so that a file that comes and goes leaves no
    trace.

    Raises:
      OSError: there is something that cannot be looked at.
    """
    digest = hashlib.sha256()
    for path in paths:
        for name, state in _walk(path):
            seen = f"{name}\0{state.st_size}\0{state.st_mtime_ns}\n" if state else f"{name}\n"
            digest.update(seen.encode(errors="surrogateescape"))
    return digest.hexdigest()[:16]


def _walk(path: Path) -> Iterator[tuple[str, os.stat_result | None]]:
    """Yields a path, and all below it, in order; a folder, and what is not there, has no state."""
    try:
        state = path.stat()
    except FileNotFoundError:
        yield f"no {path}", None
        return
    if stat.S_ISDIR(state.st_mode):
        yield from _walk_folder(str(path))
    else:
        yield str(path), state


def _walk_folder(folder: str) -> Iterator[tuple[str, os.stat_result | None]]:
    yield folder, None
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    for entry in listed:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk_folder(entry.path)
        else:
            # A link that leads nowhere is stamped itself.
            is_there = not entry.is_symlink() or Path(entry.path).exists()
            yield entry.path, entry.stat(follow_symlinks=is_there)


def stamp_of_packages() -> str:
    """Changes with Python, and with the versions of the packages that it finds."""
    found = []
    for folder in dict.fromkeys(Path(folder).resolve() for folder in sys.path):
        try:
            names = [path.name for path in folder.iterdir()]
        except OSError:
            continue  # Python leaves it out as well.
        # The names of these folders hold the versions.
        if versions := sorted(n for n in names if n.endswith((".dist-info", ".egg-info", ".egg"))):
            found.append(versions)
    return stamp_of(sys.version, sys.prefix, found)


def stamp_of_environment(
    environ: Mapping[str, str], prefixes: tuple[str, ...], names: Iterable[str]
) -> str:
    """Changes with the variables of some names, and with those that begin with a prefix."""
    known = frozenset(names)
    chosen = (name for name in environ if name in known or name.startswith(prefixes))
    return stamp_of([(name, environ[name]) for name in sorted(chosen)])
