"""Records the inputs and outputs of the last run, to skip a run that would only repeat it."""

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

from components.disk import write_atomically
from components.example_gen.paths import is_remote
from pipeline.config.user_code import files_fingerprint, own_sources
from pipeline.data.ingestion import curated_schema, pictures_revision
from pipeline.graph.cache_keys import files_read
from pipeline.own_modules import PACKAGES, ROOT
from pipeline.records.event_log import EventKind, EventLog
from pipeline.records.summary import RunSummary, Status
from pipeline.run_context import RunContext
from pipeline.runs.console import show_path
from pipeline.versions.retention import find_expired
from trainer_module.strategies.tpu import NAME_VARIABLE
from trainer_module.typed_words import typed_command

logger = logging.getLogger(__name__)

FINAL = (Status.PUSHED, Status.NOT_BLESSED)
"""The outcomes that remain the same as long as the inputs do not change."""
FORMAT = 1
"""The version of the file's format. A change of the comparison needs no new version, as the code is
among the compared inputs.
"""


Facts = dict[str, str]
"""Hashes of a run's inputs or outputs, by their names in messages."""
_PREFIXES = ("CUDA_", "KERAS_", "NVIDIA_", "OMP_", "TF_", "TFX_", "XLA_")
_VARIABLES = ("LD_LIBRARY_PATH", "PYTHONHASHSEED", NAME_VARIABLE)
"""The prefixes and names of environment variables that components and their libraries read."""

_KINDS_NOT_READ_BY_RUNS = {
    EventKind.SKIPPED,
    EventKind.SKEW_CHECKED,
    EventKind.SKEW,
    EventKind.CLOCK_SET_BACK,
    EventKind.RECOVERED,
    EventKind.STALE,
    EventKind.LEFT_OUT,
    EventKind.NOTIFICATION_FAILED,
}
"""The kinds of events that no run reads."""


class LastRun(BaseModel):
    """A run with a final outcome, and the state on which another run would depend."""

    format: int = FORMAT
    run: str
    ended: datetime
    status: Status
    pushed: str | None
    reason: str | None
    given: Facts
    """Hashes of the inputs of the run."""
    left: Facts
    """Hashes of the outputs of the run, after its end."""

    @property
    def exit_code(self) -> int:
        """The exit code of a run that would repeat this run."""
        return self.status.exit_code

    def __str__(self) -> str:
        """Returns the message of a run that would repeat this run."""
        ended = self.ended.astimezone().strftime("%Y-%m-%d %H:%M:%S")
        if self.status is Status.PUSHED:
            outcome = f"its model is {show_path(self.pushed or '')}"
        else:
            outcome = f"it pushed nothing: {self.reason}"
        return (
            f"nothing has changed since run {self.run} ended on {ended}; {outcome}; "
            f"`{typed_command('run --force')}` runs anyway"
        )


class Reruns:
    """The comparison of a run with the last run, and the record for the next run."""

    def __init__(self, context: RunContext) -> None:
        """Hashes the inputs of the run."""
        self._context = context
        self._file = context.layout.last_run
        self._changes = ""
        try:
            self._inputs = inputs_of(context)
        except OSError as error:
            logger.info("The inputs cannot be compared with the last run's: %s", error)
            self._inputs = None

    def repeated(self) -> LastRun | None:
        """Returns the last run, if this run would only repeat it."""
        try:
            last = LastRun.model_validate_json(self._file.read_text())
            outputs = outputs_of(self._context, last.run)
        except (OSError, ValidationError):
            return None  # There is no record, or a record in another format.
        if self._inputs is None or outputs is None or last.format != FORMAT:
            return None
        changed = [*_differences(last.given, self._inputs), *_differences(last.left, outputs)]
        self._changes = f"Changed since run {last.run}: {', '.join(changed)}"
        return None if changed else last

    def forget(self) -> None:
        """Deletes the record before a run begins, as its outcome is unknown."""
        if self._changes:
            logger.info("%s", self._changes)
        self._file.unlink(missing_ok=True)

    def keep(self, summary: RunSummary, would_run: Callable[[], bool]) -> None:
        """Stores the outcome of a run, if another run now would do nothing.

        A failure is logged and does not fail the run; the next run is then not skipped.

        Args:
          summary: the summary of the run, which has ended.
          would_run: returns whether a component would run now.
        """
        context = self._context
        if self._inputs is None or summary.status not in FINAL:
            return
        try:
            event_log = EventLog(context.layout.event_log)
            if find_expired(context.config.schedule, context.layout, event_log) or would_run():
                logger.info("The next run has something to do, though nothing changes")
                return
            outputs = outputs_of(context, summary.run_id)
            if outputs is None:
                return
            last = LastRun(
                run=summary.run_id,
                ended=datetime.now().astimezone(),
                status=summary.status,
                pushed=summary.pushed,
                reason=summary.reason,
                given=self._inputs,
                left=outputs,
            )
            write_atomically(self._file, last.model_dump_json(indent=2) + "\n")
        except Exception:
            logger.exception("The outcome of the run could not be stored for the next run")


def _differences(before: Facts, now: Facts) -> list[str]:
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def inputs_of(context: RunContext) -> Facts | None:
    """Returns hashes of a run's inputs.

    The hashes are computed before the run begins, so that changes during the run count as new.

    Returns:
      The hashes by name, or None if inputs are on another machine.

    Raises:
      OSError: an input cannot be read.
    """
    config, layout = context.config, context.layout
    curated = curated_schema(config.schema_file, layout)
    if config.metadata is not None or (curated is not None and is_remote(curated)):
        return None
    lock = ROOT / "uv.lock"
    window = context.window
    return {
        "the folder": fingerprint_of(layout, Path.cwd()),
        # It can matter whether a config sets a value explicitly or by default.
        "the config": fingerprint_of(
            config.model_dump_json(), config.model_dump_json(exclude_unset=True)
        ),
        "Scopeline's code": files_fingerprint(
            source for name in PACKAGES for source in sorted((ROOT / name).rglob("*.py"))
        ),
        "code that the config names": stamp_of_files(own_sources(config.own_code.values())),
        "files that the config names": stamp_of_files(
            [*files_read(config.trainer_settings), *([Path(curated)] if curated else [])]
        ),
        "packages": fingerprint_of(stamp_of_packages(), stamp_of_files([lock])),
        "the environment": stamp_of_environment(os.environ, _PREFIXES, _VARIABLES),
        "the data": fingerprint_of(
            [(span.number, span.signature) for span in context.data],
            [(span.number, span.signature) for span in window.empty] if window else [],
        ),
        "pictures": pictures_revision(config.data, context.reading.pictures, layout),
    }


def outputs_of(context: RunContext, run: str) -> Facts | None:
    """Returns hashes of the current state of the last run's outputs.

    Args:
      run: the last run's id.

    Returns:
      The hashes by name, or None if the event log is empty.

    Raises:
      OSError: an output cannot be read.
    """
    layout = context.layout
    event_log = EventLog(layout.event_log)
    last = event_log.last(*(kind for kind in EventKind if kind not in _KINDS_NOT_READ_BY_RUNS))
    if last is None:
        return None
    # The glob includes the files of an unfinished transaction.
    metadata = sorted(layout.root.glob(f"{layout.metadata.name}*"))
    served = [] if is_remote(layout.serving) else [Path(layout.serving)]
    return {
        "the history": fingerprint_of(last.id, last.at.isoformat(), last.kind.value, last.run),
        "the metadata": stamp_of_files(metadata),
        "artifacts": stamp_of_files([layout.pipeline_root]),
        "versions": stamp_of_files(served),
        "the kept schema": stamp_of_files([layout.schema]),
        "the summary": stamp_of_files([layout.run(run).summary]),
    }


def fingerprint_of(*values: object) -> str:
    """Returns a hash of values, from their `repr`."""
    return hashlib.sha256(repr(values).encode(errors="replace")).hexdigest()[:16]


def stamp_of_files(paths: Iterable[Path]) -> str:
    """Returns a hash of the names, sizes and times of files, and of all files below folders.

    Hidden files are included. The times of folders are not, so that a temporary file in a folder
    does not change the hash.

    Raises:
      OSError: a file cannot be read.
    """
    digest = hashlib.sha256()
    for path in paths:
        for name, state in _walk(path):
            entry = f"{name}\0{state.st_size}\0{state.st_mtime_ns}\n" if state else f"{name}\n"
            digest.update(entry.encode(errors="surrogateescape"))
    return digest.hexdigest()[:16]


def _walk(path: Path) -> Iterator[tuple[str, os.stat_result | None]]:
    """Yields a path and everything below it in order; folders and missing files have no state."""
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
        children = sorted(entries, key=lambda entry: entry.name)
    for entry in children:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk_folder(entry.path)
        else:
            # For a broken link, the state is that of the link itself.
            has_target = not entry.is_symlink() or Path(entry.path).exists()
            yield entry.path, entry.stat(follow_symlinks=has_target)


def stamp_of_packages() -> str:
    """Returns a hash of Python's version and of the installed packages' versions."""
    installed = []
    for folder in dict.fromkeys(Path(folder).resolve() for folder in sys.path):
        try:
            names = [path.name for path in folder.iterdir()]
        except OSError:
            continue  # Python ignores such a folder, too.
        # The names of these folders contain the versions.
        if versions := sorted(n for n in names if n.endswith((".dist-info", ".egg-info", ".egg"))):
            installed.append(versions)
    return fingerprint_of(sys.version, sys.prefix, installed)


def stamp_of_environment(
    environ: Mapping[str, str], prefixes: tuple[str, ...], names: Iterable[str]
) -> str:
    """Returns a hash of environment variables, chosen by name or by prefix."""
    fixed = frozenset(names)
    chosen = (name for name in environ if name in fixed or name.startswith(prefixes))
    return fingerprint_of([(name, environ[name]) for name in sorted(chosen)])
