"""Drift between spans: small and heavy-tailed ones that are alike alarm nobody, a real one does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import tensorflow as tf
import tensorflow_data_validation as tfdv
from pydantic import TypeAdapter
from tensorflow_data_validation.statistics.stats_impl import generate_statistics_in_memory
from tensorflow_metadata.proto.v0 import statistics_pb2
from tfx.types import Artifact, artifact_utils, standard_artifacts
from tfx_bsl.coders.example_coder import RecordBatchToExamplesEncoder
from trips import trips

from components.example_validator.anomalies import Anomaly, read_anomalies
from components.example_validator.component import Executor, ValidationSettings
from components.example_validator.drift import Drift
from trainer_module.settings import Task

NUMBERS = ["fare", "tip", "seats", "zone", "is_cash"]
DRIFT = Drift({name: {"jensen_shannon": 0.05} for name in NUMBERS})


class Spans:
    """The artifacts of spans, and what ExampleValidator makes of two of them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._statistics: dict[str, Artifact] = {}
        self._examples: dict[str, Artifact] = {}

    def add(self, name: str, rows: pa.RecordBatch) -> None:
        """A span of one split, with its statistics."""
        statistics = generate_statistics_in_memory(rows, tfdv.StatsOptions())
        self._statistics[name] = self._write_statistics(name, statistics)
        examples = self._artifact(standard_artifacts.Examples, name, "examples")
        path = Path(examples.uri, "Split-train", "data.gz")
        path.parent.mkdir(parents=True)
        with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
            for record in RecordBatchToExamplesEncoder().encode(rows):
                writer.write(record)
        self._examples[name] = examples
        schema = self._root / "schema"
        if not schema.exists():
            schema.mkdir()
            tfdv.write_schema_text(tfdv.infer_schema(statistics), str(schema / "schema.pbtxt"))

    def compare(self, older: str, newer: str) -> list[Anomaly]:
        """What is said of the columns that drifted."""
        schema = standard_artifacts.Schema()
        schema.uri = str(self._root / "schema")
        anomalies = self._artifact(standard_artifacts.ExampleAnomalies, newer, f"since {older}")
        inputs = {
            "statistics": [self._statistics[newer]],
            "previous_statistics": [self._statistics[older]],
            "examples": [self._examples[newer]],
            "schema": [schema],
        }
        settings = ValidationSettings(
            "company",
            Task.MULTICLASS,
            declared=None,
            on_anomaly="warn",
            drift=DRIFT,
            compared_with=older,
        )
        properties = {"settings": TypeAdapter(ValidationSettings).dump_json(settings)}
        Executor().Do(inputs, {"anomalies": [anomalies]}, properties)
        return [one for one in read_anomalies(anomalies) if one.is_drift]

    def _artifact(self, kind: type[Artifact], *names: str) -> Artifact:
        artifact = kind()
        artifact.uri = str(self._root.joinpath(*names))
        if kind is not standard_artifacts.ExampleAnomalies:
            artifact.split_names = artifact_utils.encode_split_names(["train"])
        return artifact

    def _write_statistics(
        self, name: str, statistics: statistics_pb2.DatasetFeatureStatisticsList
    ) -> Artifact:
        artifact = self._artifact(standard_artifacts.ExampleStatistics, name, "statistics")
        path = Path(artifact.uri, "Split-train", "FeatureStats.pb")
        path.parent.mkdir(parents=True)
        path.write_bytes(statistics.SerializeToString())
        return artifact


@pytest.fixture(scope="module", params=[200, 2000])
def spans(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Spans:
    """Thirty days of the same data, and days of which a column is in another unit."""
    made = Spans(tmp_path_factory.mktemp(f"spans of {request.param}"))
    for day in range(31):
        made.add(f"day {day}", trips(day, request.param))
    for name in NUMBERS:
        made.add(name, trips(99, request.param, **{name: lambda values: values * 10}))
    return made


def test_thirty_clean_spans_alarm_nobody(spans: Spans) -> None:
    found = [spans.compare(f"day {day}", f"day {day + 1}") for day in range(30)]
    assert [str(one) for anomalies in found for one in anomalies] == []


@pytest.mark.parametrize("name", NUMBERS)
def test_a_column_times_ten_is_found_in_the_first_span(spans: Spans, name: str) -> None:
    (found,) = spans.compare("day 0", name)
    assert (found.column, found.splits) == (name, ("train",))
    assert "expected the distribution of its values to move by no more than 0." in found.description
    assert " compared with day 0: mean " in found.description
