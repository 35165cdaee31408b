"""What the steps of a run tell each other, in files on a volume or in an object store.

The first step writes what it has decided, every step how it ended.
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
"""Why there is a run, for the event log."""
_NAME = "begun.json"
_STEPS_IN_A_ROW = 3
"""How many time-outs of a step one run is taken to last at most."""


class RunFolder:
    """The files of one run."""

    def __init__(self, root: str, run_id: str) -> None:
        """Names the files; reads and writes nothing.

        Args:
          root: the folder, or URI, of the pipeline.
          run_id: of the run.
        """
        self._folder = posixpath.join(root, "runs", run_id)

    def __str__(self) -> str:
        return self._folder

    def write_report(self, report: StepReport) -> None:
        """Writes how a step ended, in the place of an earlier attempt's report."""
        self.write(f"steps/{report.step}.json", report.model_dump_json())

    def delete_report(self, step: str) -> None:
        """Deletes the report of an earlier attempt at a step, as another one begins."""
        path = posixpath.join(self._folder, f"steps/{step}.json")
        if self._files.exists(path):
            self._files.remove(path)

    def read_report(self, step: str) -> StepReport | None:
        """Returns how a step ended; None if it wrote no report."""
        text = self.read(f"steps/{step}.json")
        return None if text is None else StepReport.model_validate_json(text)

    def write(self, name: str, text: str) -> None:
        """Writes a file that is complete as soon as it is there."""
        path = posixpath.join(self._folder, name)
        self._files.makedirs(posixpath.dirname(path))
        scratch = f"{path}.{uuid.uuid4().hex}.tmp"
        with self._files.open(scratch, "w") as opened:
            opened.write(text)
        self._files.rename(scratch, path, overwrite=True)

    def read(self, name: str) -> str | None:
        """Returns the text of a file; None if it is not there."""
        path = posixpath.join(self._folder, name)
        if not self._files.exists(path):
            return None
        with self._files.open(path, "r") as opened:
            return str(opened.read())

    @cached_property
    def _files(self) -> Any:
        """TFX's access to files: of this machine, or of object stores by way of TensorFlow."""
        if not is_remote(self._folder):
            return LocalFilesystem
        from tfx.dsl.io import fileio

        return fileio


class RunRecord(BaseModel):
    """What the first step decided, for the steps after it."""

    config: PipelineConfig
    """With the run's parameters."""
    because: str
    began: float
    """Seconds since 1970."""
    window: Window | None
    """The spans that were chosen, where the data comes in spans."""
    data: list[Span]
    """The spans that are trained on; data without spans counts as one."""
    states: SpanStates
    notes: list[str]
    """Remarks on the window, for people."""
    ingestion: Ingestion | None
    """How files become examples; None for a run that has not begun."""
    location: DataLocation
    """Where the data is."""
    is_alone: bool
    """Whether no other run of the pipeline was under way."""
    nodes: dict[str, NodeValues]
    """By node, in topological order."""
    shown: list[str]
    """Of the nodes those that are components, not resolvers."""

    def context(self, layout: Layout) -> RunContext:
        """What the first step has resolved, for the steps after it.

        Args:
          layout: of the pipeline on the cluster.
        """
        return RunContext(
            self.config, layout, self.location, self.window, tuple(self.data), self.ingestion
        )

    @classmethod
    def read(cls, folder: RunFolder) -> RunRecord | None:
        """Returns the record of a run; None if its first step has not written one.

        Raises:
          ConfigError: the code that wrote it is another.
        """
        text = folder.read(_NAME)
        try:
            return None if text is None else cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            raise ConfigError(
                f"{folder}/{_NAME}: cannot be read ({first['msg']} at "
                f"{'.'.join(map(str, first['loc']))}); all steps of a run have to be of one image"
            ) from None

    def write(self, folder: RunFolder) -> None:
        """Writes the record, for the steps after the first."""
        folder.write(_NAME, self.model_dump_json(by_alias=True))


def is_alone(config: PipelineConfig, layout: Layout, run_id: str) -> bool:
    """Returns whether the ledger knows of no other run that is under way; False without a ledger.

    On Kubeflow no lock keeps runs of a pipeline apart.

    Args:
      config: of the pipeline; a run that never recorded its end counts for some time-outs.
      layout: of the pipeline.
      run_id: the run that does not count.
    """
    if not layout.is_kept:
        return False
    event_log = EventLog(layout.event_log)
    ended = {event.run for event in event_log.events(EventKind.FINISHED, EventKind.FAILED)}
    since = datetime.now().astimezone() - _STEPS_IN_A_ROW * settings_of(config).timeout
    return not any(
        event.run not in {run_id, *ended} and event.at > since
        for event in event_log.events(EventKind.STARTED)
    )
