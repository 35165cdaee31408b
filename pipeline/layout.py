"""The names of all files and folders that a pipeline writes below the output folder."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from components.example_gen.paths import is_remote
from pipeline.config.sections.push import PushSettings

_SCHEMA = "schema.pbtxt"


@dataclass(frozen=True)
class Layout:
    """The folders and files of one pipeline below the output folder."""

    output: Path
    name: str
    push_directory: str | None = None
    remote: str | None = None
    """A URI for artifacts and models, if they are not below `output`."""
    is_kept: bool = True
    """Whether `output` outlives the process; if not, the kept schema is at the URI as well."""
    is_elsewhere: bool = False
    """Whether the files are on another machine, so that they cannot be read here."""

    @classmethod
    def of(cls, name: str, push: PushSettings, output: Path) -> Layout:
        """Returns the layout of a pipeline by its name and the config's section `push`."""
        return cls(output.resolve(), name, push.directory)

    @property
    def root(self) -> Path:
        """The folder of this pipeline."""
        return self.output / self.name

    @property
    def pipeline_root(self) -> Path:
        """The folder of TFX's artifacts, with a folder per component."""
        return self.root / "pipeline_root"

    @property
    def artifacts(self) -> str:
        """The folder or URI of artifacts, as TFX takes it."""
        return str(self.pipeline_root) if self.remote is None else self._at_remote("pipeline_root")

    @property
    def metadata(self) -> Path:
        """The SQLite file of ML Metadata."""
        return self.root / "metadata.db"

    @property
    def schema(self) -> Path:
        """The schema that is inferred from the first data."""
        return self.root / _SCHEMA

    @property
    def kept_schema(self) -> str:
        """The path or URI of the kept schema, as components take it."""
        return str(self.schema) if self.is_kept else self._at_remote(_SCHEMA)

    @property
    def serving(self) -> str:
        """The folder, or URI, that a model server watches."""
        if self.push_directory is None:
            if self.remote is not None:
                return self._at_remote("serving", self.name)
            return str(self.root / "serving" / self.name)
        if is_remote(self.push_directory):
            return self.push_directory
        return str(Path(self.push_directory).absolute())

    @property
    def lock(self) -> Path:
        """The lock file of the run in progress."""
        return self.root / ".lock"

    @property
    def hold(self) -> Path:
        """The file of a hold, which stops pushes."""
        return self.root / "hold.json"

    @property
    def push_lock(self) -> Path:
        """The lock file for pushing models and setting holds."""
        return self.root / ".push"

    @property
    def scheduled(self) -> Path:
        """The lock file of a run that a scheduler started, held from its start."""
        return self.root / ".scheduled"

    @property
    def scheduled_log(self) -> Path:
        """The output of runs that a scheduler started; `.log.1` holds the output before
        rotation.
        """
        return self.root / "scheduled.log"

    @property
    def event_log(self) -> Path:
        """The event log, with all decisions and outcomes."""
        return self.root / "ledger.db"

    @property
    def last_run(self) -> Path:
        """The record of the last run's inputs and outcome, with which a repeated run is skipped."""
        return self.root / ".last_run.json"

    @property
    def scheduler_lock(self) -> Path:
        """The lock file of the scheduler of the output folder."""
        return self.output / "scheduler.lock"

    @property
    def heartbeat(self) -> Path:
        """The file with the heartbeat of that scheduler."""
        return self.output / "scheduler.heartbeat"

    @property
    def metrics(self) -> Path:
        """The metrics of the last check in Prometheus format."""
        return self.root / "schedule.prom"

    @property
    def builtin(self) -> Path:
        """The folder of unpacked shipped data."""
        return self.output / "builtin"

    def run(self, run_id: str) -> RunLayout:
        """Returns the files of one run."""
        return RunLayout(self.root / "runs" / run_id)

    def _at_remote(self, *parts: str) -> str:
        return "/".join([str(self.remote).rstrip("/"), self.name, *parts])


@dataclass(frozen=True)
class RunLayout:
    """The files of one run."""

    root: Path

    @property
    def log(self) -> Path:
        """The output of all components."""
        return self.root / "run.log"

    def log_of(self, step: str) -> Path:
        """Returns the log of one step, for runs whose steps are separate pods."""
        return self.root / f"{step}.log"

    @property
    def summary(self) -> Path:
        """The outcome of the run as JSON."""
        return self.root / "summary.json"


def new_run_id() -> str:
    """Returns a new run id, which sorts by time and is a valid folder name."""
    return datetime.now().astimezone().strftime("%Y-%m-%dT%H-%M-%S.%f")
