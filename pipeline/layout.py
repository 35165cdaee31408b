"""Where a pipeline leaves things: the one owner of the names in the output folder."""

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
    """A URI below which artifacts and models are, where not below `output`."""
    is_kept: bool = True
    """Whether `output` outlives the process; else the kept schema is at the URI as well."""
    is_elsewhere: bool = False
    """Whether the files are those of another machine: nothing is looked at then."""

    @classmethod
    def of(cls, name: str, push: PushSettings, output: Path) -> Layout:
        """Returns the layout of the pipeline of a name, whose models go where `push` says."""
        return cls(output.resolve(), name, push.directory)

    @property
    def root(self) -> Path:
        """Everything of this pipeline."""
        return self.output / self.name

    @property
    def pipeline_root(self) -> Path:
        """TFX's artifacts, a folder per component."""
        return self.root / "pipeline_root"

    @property
    def artifacts(self) -> str:
        """The same as TFX is told it."""
        return str(self.pipeline_root) if self.remote is None else self._at_remote("pipeline_root")

    @property
    def metadata(self) -> Path:
        """ML Metadata's SQLite file."""
        return self.root / "metadata.db"

    @property
    def schema(self) -> Path:
        """The schema inferred from the first data."""
        return self.root / _SCHEMA

    @property
    def kept_schema(self) -> str:
        """The same as components are told it."""
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
        """Held by the one run that may be under way."""
        return self.root / ".lock"

    @property
    def hold(self) -> Path:
        """Somebody's word that nothing is to be pushed for a while."""
        return self.root / "hold.json"

    @property
    def push_lock(self) -> Path:
        """Held by whoever pushes, or sets a hold."""
        return self.root / ".push"

    @property
    def scheduled(self) -> Path:
        """Held by the run that a scheduler started, from its first moment on."""
        return self.root / ".scheduled"

    @property
    def scheduled_log(self) -> Path:
        """What runs that a scheduler started have printed; before it became long, in `.log.1`."""
        return self.root / "scheduled.log"

    @property
    def event_log(self) -> Path:
        """Every decision and what came of it."""
        return self.root / "ledger.db"

    @property
    def last_run(self) -> Path:
        """What the last run rested on, and what it came to: a run that would repeat it does not."""
        return self.root / ".last_run.json"

    @property
    def scheduler_lock(self) -> Path:
        """Held by the one scheduler that looks after the pipelines of the output folder."""
        return self.output / "scheduler.lock"

    @property
    def heartbeat(self) -> Path:
        """The sign of life of that scheduler."""
        return self.output / "scheduler.heartbeat"

    @property
    def metrics(self) -> Path:
        """What the last look came to, for Prometheus."""
        return self.root / "schedule.prom"

    @property
    def builtin(self) -> Path:
        """Shipped data, unpacked."""
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
        """Everything that any component said."""
        return self.root / "run.log"

    def log_of(self, step: str) -> Path:
        """Everything that one step said, where each is a pod of its own."""
        return self.root / f"{step}.log"

    @property
    def summary(self) -> Path:
        """The run's outcome, for programs."""
        return self.root / "summary.json"


def new_run_id() -> str:
    """Returns a run id that sorts by time and may name a folder."""
    return datetime.now().astimezone().strftime("%Y-%m-%dT%H-%M-%S.%f")
