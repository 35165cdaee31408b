"""The files that the steps of a run share, on a volume or in an object store.

The first step writes its decisions, every step its report.
"""

from __future__ import annotations

import posixpath
import uuid
from datetime import datetime
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ValidationError
from tfx.dsl.io.plugins.local import LocalFilesystem

from components.example_gen.paths import is_remote
from pipeline.config.settings import PipelineConfig
from pipeline.data.files import DataLocation
from pipeline.data.ingestion import Ingestion
from pipeline.data.spans import Span, Window
from pipeline.kubeflow.cluster_layout import settings_of
from pipeline.kubeflow.compiled import NodeValues, StepReport
from pipeline.layout import Layout
from pipeline.records.event_log import EventKind, EventLog
from pipeline.records.run_events import SpanStates
from pipeline.run_context import RunContext
from trainer_module.errors import ConfigError

BECAUSE = "on Kubeflow"
"""The reason for runs on Kubeflow in the event log."""
_NAME = "begun.json"
_MAX_TIME_LIMITS = 3
"""A run without a recorded end counts as in progress for this multiple of a step's time limit."""


class RunFolder:
    """The files of one run."""

    def __init__(self, root: str, run_id: str) -> None:
        """Stores the paths; reads and writes nothing.

        Args:
          root: the folder, or URI, of the pipeline.
        """
        self._folder = posixpath.join(root, "runs", run_id)

    def __str__(self) -> str:
        return self._folder

    def write_report(self, report: StepReport) -> None:
        """Writes the report of a step, and replaces the report of an earlier attempt."""
        self.write(f"steps/{report.step}.json", report.model_dump_json())

    def delete_report(self, step: str) -> None:
        """Deletes the report of an earlier attempt at a step."""
        path = posixpath.join(self._folder, f"steps/{step}.json")
        if self._files.exists(path):
            self._files.remove(path)

    def read_report(self, step: str) -> StepReport | None:
        """Returns the report of a step, or None."""
        text = self.read(f"steps/{step}.json")
        return None if text is None else StepReport.model_validate_json(text)

    def write(self, name: str, text: str) -> None:
        """Writes a file atomically."""
        path = posixpath.join(self._folder, name)
        self._files.makedirs(posixpath.dirname(path))
        scratch = f"{path}.{uuid.uuid4().hex}.tmp"
        with self._files.open(scratch, "w") as opened:
            opened.write(text)
        self._files.rename(scratch, path, overwrite=True)

    def read(self, name: str) -> str | None:
        """Returns the text of a file, or None if the file does not exist."""
        path = posixpath.join(self._folder, name)
        if not self._files.exists(path):
            return None
        with self._files.open(path, "r") as opened:
            return str(opened.read())

    @cached_property
    def _files(self) -> Any:
        """TFX's access to local files, or to object stores through TensorFlow."""
        if not is_remote(self._folder):
            return LocalFilesystem
        from tfx.dsl.io import fileio

        return fileio


class RunRecord(BaseModel):
    """The decisions of the first step, for the steps after it."""

    config: PipelineConfig
    """The config with the run's parameters."""
    because: str
    """The reason for the run in the event log."""
    began: float
    """The start of the run in seconds since 1970."""
    window: Window | None
    """The chosen window of spans, or None for data without spans."""
    data: list[Span]
    """The spans to train on; data without spans counts as one span."""
    states: SpanStates
    """The signature and digest of each span when the run began."""
    notes: list[str]
    """Notes on the window, for the user."""
    ingestion: Ingestion | None
    """The settings for making examples, or None for a run whose first step wrote no record."""
    location: DataLocation
    is_alone: bool
    """Whether no other run of the pipeline was in progress."""
    nodes: dict[str, NodeValues]
    """The values of the nodes by id, in topological order."""
    shown: list[str]
    """The nodes that are components, not resolvers."""

    def context(self, layout: Layout) -> RunContext:
        """Returns the context that the first step has resolved.

        Args:
          layout: the layout of the pipeline on the cluster.
        """
        return RunContext(
            self.config, layout, self.location, self.window, tuple(self.data), self.ingestion
        )

    @classmethod
    def read(cls, folder: RunFolder) -> RunRecord | None:
        """Returns the record of a run, or None if the first step has not written a record.

        Raises:
          ConfigError: a different version of the code wrote the record.
        """
        text = folder.read(_NAME)
        try:
            return None if text is None else cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            raise ConfigError(
                f"{folder}/{_NAME}: cannot be read ({first['msg']} at "
                f"{'.'.join(map(str, first['loc']))}); all steps of a run must use the same image"
            ) from None

    def write(self, folder: RunFolder) -> None:
        """Writes the record for the steps after the first."""
        folder.write(_NAME, self.model_dump_json(by_alias=True))


def is_alone(config: PipelineConfig, layout: Layout, run_id: str) -> bool:
    """Returns whether the ledger has no other run in progress; False without a ledger.

    On Kubeflow, no lock prevents concurrent runs of a pipeline.

    Args:
      config: the config, with the time limit of a step.
      run_id: the current run, which does not count.
    """
    if not layout.is_kept:
        return False
    event_log = EventLog(layout.event_log)
    ended = {event.run for event in event_log.events(EventKind.FINISHED, EventKind.FAILED)}
    since = datetime.now().astimezone() - _MAX_TIME_LIMITS * settings_of(config).timeout
    return not any(
        event.run not in {run_id, *ended} and event.at > since
        for event in event_log.events(EventKind.STARTED)
    )
