"""What the first step of a run decides, and writes down for the steps after it."""

from __future__ import annotations

from pydantic import BaseModel, ValidationError

from pipeline.config.settings import PipelineConfig
from pipeline.data.ingestion import Ingestion
from pipeline.data.location import DataLocation
from pipeline.data.spans import Span, Window
from pipeline.kubeflow.compiled import NodeValues
from pipeline.kubeflow.steps.run_folder import RunFolder
from pipeline.layout import Layout
from pipeline.records.run_events import SpanStates
from pipeline.run_context import RunContext
from trainer_module.errors import ConfigError

BECAUSE = "on Kubeflow"
"""Why there is a run, for the event log."""
_NAME = "begun.json"


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
        """The record of a run; None if its first step has not written one.

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
