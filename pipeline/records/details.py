"""The details of a run in its summary, which the report shows as pictures."""

from __future__ import annotations

import logging
from pathlib import Path

from pydantic import BaseModel

from components.evaluator.explanation.record import Bins, Explanation, WorstExamples
from components.json_numbers import Number

logger = logging.getLogger(__name__)


class SplitStatistics(BaseModel):
    """The statistics of a column in one split."""

    rows: int
    missing: Number
    """The share of rows without a value."""
    unique: int | None = None
    mean: float | None = None
    std: float | None = None
    min: float | None = None
    median: float | None = None
    max: float | None = None
    zeros: float | None = None
    """The share of zeros among the values."""
    histogram: Bins | None = None
    """The distribution of a numeric column; all splits of a column have the same bounds. The first
    and the last bin also count outliers."""
    top: list[tuple[str, Number]] = []
    """The most frequent values of a column of strings with their shares."""
    length: float | None = None
    """The mean length of strings, in characters."""


class ColumnDetails(BaseModel):
    """A column of the data, by split."""

    name: str
    type: str
    """The type of the feature, such as `numeric`, or `label`, `weight` or `ignored`."""
    splits: dict[str, SplitStatistics]
    """The statistics by split; `last span` is the newest span of data in spans."""
    distance: float | None = None
    """The largest difference between the distributions of train and eval: Jensen-Shannon divergence
    of numbers, L-infinity distance of categories."""
    drift: float | None = None
    """The same distance between the newest span and the span before."""


class StepCost(BaseModel):
    """The resources that a component used in this run."""

    cpu_seconds: float
    """The CPU seconds of the run's process and of its workers."""
    peak_bytes: int
    """The largest resident memory of the run's process and of its workers together. Memory that
    processes share counts once."""
    written_bytes: int
    price: float | None = None
    """The price by `report.price_per_hour`."""


class ArtifactDetails(BaseModel):
    """An artifact in the lineage of a run."""

    id: int
    type: str
    uri: str
    producer: str | None = None
    """The component that made it in this run or in the run whose result it took from the cache.
    None for an artifact of an earlier run that this run only reads."""
    consumers: list[str] = []
    bytes: int | None = None
    """The size, or None if the files were deleted or are remote."""


class Lineage(BaseModel):
    """The artifacts, code and machine of a run."""

    artifacts: list[ArtifactDetails] = []
    edges: list[tuple[str, str]] = []
    """The pairs of components of which the second reads an artifact of the first."""
    config: str = ""
    """The fingerprint of the config."""
    code: str = ""
    """The fingerprint of the code: the git commit if known, or a digest of the package."""
    versions: dict[str, str] = {}
    """The versions of packages, by name, and of Python."""
    machine: dict[str, str] = {}
    """System, processor, cores, memory and accelerators."""


class RunDetails(BaseModel):
    """The details of a run, which the report shows beside the other fields of the summary."""

    config: dict[str, object] = {}
    """The config as it was run, without secrets."""
    columns: list[ColumnDetails] = []
    columns_omitted: int = 0
    """The number of further columns, without details."""
    explanation: Explanation | None = None
    worst_examples: str = ""
    """The path of the Evaluator's file of worst examples, or an empty string."""
    slice_intervals: dict[str, dict[str, tuple[Number, Number]]] = {}
    """The confidence intervals of metrics by slice and metric."""
    costs: dict[str, StepCost] = {}
    """The cost of each component that ran."""
    lineage: Lineage | None = None
    model: dict[str, object] = {}
    """The size of the exported model in bytes and in parameters, and its inputs."""
    notes: list[str] = []
    """The missing details, with the reasons."""
    seconds: float = 0.0
    """The time that collecting the details and writing the report took."""

    def read_worst_examples(self) -> WorstExamples | None:
        """Returns the worst examples, or None if their file was deleted or is damaged.

        Retention deletes the artifacts of old runs.
        """
        if not self.worst_examples:
            return None
        try:
            return WorstExamples.model_validate_json(Path(self.worst_examples).read_bytes())
        except (OSError, ValueError) as error:
            logger.info("The report lacks the worst examples: %s", error)
            return None
