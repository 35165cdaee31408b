"""The files by which the steps of a run exchange data, on a volume or in an object store."""

from __future__ import annotations

import posixpath
import uuid

from pydantic import BaseModel, ValidationError
from tfx.dsl.io import fileio

from pipeline.config.settings import PipelineConfig
from pipeline.data.location import DataLocation
from pipeline.data.spans import Span, Window
from pipeline.ingestion import Ingestion
from pipeline.kubeflow.compiled import StepReport
from pipeline.kubeflow.compiling.nodes import NodeValues
from pipeline.layout import Layout
from pipeline.records.run_events import SpanStates
from pipeline.run_context import RunContext
from trainer_module.errors import ConfigError


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


class RunFolder:
    """The files of one run."""

    def __init__(self, root: str, run_id: str) -> None:
        """Names the files; reads and writes nothing.

        Args:
          root: the folder, or URI, of the pipeline.
          run_id: of the run.
        """
        self._folder = posixpath.join(root, "runs", run_id)

    def write_record(self, record: RunRecord) -> None:
        """Writes the record of the first step."""
        self._write("begun.json", record.model_dump_json(by_alias=True))

    def read_record(self) -> RunRecord | None:
        """The record of the first step; None if it has not written one."""
        text = self._read("begun.json")
        try:
            return None if text is None else RunRecord.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            raise ConfigError(
                f"{self._folder}/begun.json: cannot be read ({first['msg']} at "
                f"{'.'.join(map(str, first['loc']))}); all steps of a run have to be of one image"
            ) from None

    def write_report(self, report: StepReport) -> None:
        """Writes how a step ended, in the place of an earlier attempt's report."""
        self._write(f"steps/{report.step}.json", report.model_dump_json())

    def delete_report(self, step: str) -> None:
        """Deletes the report of an earlier attempt at a step, as another one begins."""
        path = posixpath.join(self._folder, f"steps/{step}.json")
        if fileio.exists(path):
            fileio.remove(path)

    def read_report(self, step: str) -> StepReport | None:
        """How a step ended; None if it wrote no report."""
        text = self._read(f"steps/{step}.json")
        return None if text is None else StepReport.model_validate_json(text)

    def _write(self, name: str, text: str) -> None:
        """Writes a file that is complete as soon as it is there."""
        path = posixpath.join(self._folder, name)
        fileio.makedirs(posixpath.dirname(path))
        scratch = f"{path}.{uuid.uuid4().hex}.tmp"
        with fileio.open(scratch, "w") as opened:
            opened.write(text)
        fileio.rename(scratch, path, overwrite=True)

    def _read(self, name: str) -> str | None:
        path = posixpath.join(self._folder, name)
        if not fileio.exists(path):
            return None
        with fileio.open(path, "r") as opened:
            return str(opened.read())
