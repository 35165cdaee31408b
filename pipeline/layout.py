"""The paths of all files and folders that a pipeline writes below the output folder."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from components.example_gen.paths import is_remote
from pipeline.config.sections.push import PushSettings

_SCHEMA = "schema.pbtxt"
RUN_ID_TIME = "%Y-%m-%dT%H-%M-%S.%f"
"""The format of the local time in the id of a run on this machine."""


@dataclass(frozen=True)
class Layout:
    """The folders and files of one pipeline below the output folder."""

    output: Path
    name: str
    push_directory: str | None = None
    remote: str | None = None
    """The URI of artifacts and models, or None if they are below `output`."""
    is_kept: bool = True
    """Whether `output` remains after the process; if not, the inferred schema is below `remote`."""
    is_elsewhere: bool = False
    """Whether the files are on another machine and cannot be read on this machine."""

    @classmethod
    def of(cls, name: str, push: PushSettings, output: Path) -> Layout:
        """Returns the layout of a pipeline."""
        return cls(output.resolve(), name, push.directory)

    @property
    def root(self) -> Path:
        """The folder of this pipeline below the output folder."""
        return self.output / self.name

    @property
    def pipeline_root(self) -> Path:
        """The folder of TFX's artifacts, with a folder per component."""
        return self.root / "pipeline_root"

    @property
    def artifacts(self) -> str:
        """The path or URI of the folder of artifacts, for TFX."""
        return str(self.pipeline_root) if self.remote is None else self._at_remote("pipeline_root")

    @property
    def metadata(self) -> Path:
        """The SQLite file of ML Metadata."""
        return self.root / "metadata.db"

    @property
    def schema(self) -> Path:
        """The schema file that the first run has inferred from its data."""
        return self.root / _SCHEMA

    @property
    def kept_schema(self) -> str:
        """The path or URI of the inferred schema, for components."""
        return str(self.schema) if self.is_kept else self._at_remote(_SCHEMA)

    @property
    def serving(self) -> str:
        """The path or URI of the folder with pushed versions, which a model server watches."""
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
        """The lock file that a run holds if a scheduler started it."""
        return self.root / ".scheduled"

    @property
    def scheduled_log(self) -> Path:
        """The output of runs that a scheduler started; after rotation, `.log.1` has the older
        output.
        """
        return self.root / "scheduled.log"

    @property
    def event_log(self) -> Path:
        """The event log, with all decisions and results."""
        return self.root / "ledger.db"

    @property
    def last_run(self) -> Path:
        """The inputs and the result of the last run, to skip a run without changes."""
        return self.root / ".last_run.json"

    @property
    def scheduler_lock(self) -> Path:
        """The lock file of the scheduler of the output folder."""
        return self.output / "scheduler.lock"

    @property
    def heartbeat(self) -> Path:
        """The file with the heartbeat of the scheduler of the output folder."""
        return self.output / "scheduler.heartbeat"

    @property
    def metrics(self) -> Path:
        """The file with metrics of the scheduler's last check, in Prometheus format."""
        return self.root / "schedule.prom"

    @property
    def run_metrics(self) -> Path:
        """The file with metrics of the last run, in Prometheus format."""
        return self.root / "run.prom"

    @property
    def builtin(self) -> Path:
        """The folder of unpacked data of `builtin:`."""
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
        """The log of all components."""
        return self.root / "run.log"

    def log_of(self, step: str) -> Path:
        """Returns the log of one step of a run on Kubeflow."""
        return self.root / f"{step}.log"

    @property
    def summary(self) -> Path:
        """The summary of the run as JSON."""
        return self.root / "summary.json"

    @property
    def report(self) -> Path:
        """The report of the run for a browser."""
        return self.root / "report.html"

    @property
    def lineage_events(self) -> Path:
        """The OpenLineage events of the run, one JSON object per line."""
        return self.root / "openlineage.json"


def new_run_id() -> str:
    """Returns a new run id, which sorts by time and is a valid folder name."""
    return datetime.now().astimezone().strftime(RUN_ID_TIME)
