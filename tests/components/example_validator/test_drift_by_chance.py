"""Small and heavy-tailed spans that are alike have no drift by chance, a real drift is found."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import tensorflow as tf
import tensorflow_data_validation as tfdv
from tensorflow_data_validation.statistics.stats_impl import generate_statistics_in_memory
from tfx.types import Artifact, artifact_utils, standard_artifacts
from tfx_bsl.coders.example_coder import RecordBatchToExamplesEncoder

from components.example_validator.anomalies import Anomaly
from tests.support.trips import trips
from tests.support.validations import Statistics, Validation

NUMBERS = ["fare", "tip", "seats", "zone", "is_cash"]
DRIFT = {"columns": {name: {"jensen_shannon": 0.05} for name in NUMBERS}}


class Spans:
    """The statistics and examples of spans, and the drift between two of them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._found: dict[str, tuple[Statistics, Artifact]] = {}

    def add(self, name: str, rows: pa.RecordBatch) -> None:
        """A span of one split."""
        examples = standard_artifacts.Examples()
        examples.uri = str(self._root / name)
        examples.split_names = artifact_utils.encode_split_names(["train"])
        path = Path(examples.uri, "Split-train", "data.gz")
        path.parent.mkdir(parents=True)
        with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
            for record in RecordBatchToExamplesEncoder().encode(rows):
                writer.write(record)
        self._found[name] = generate_statistics_in_memory(rows, tfdv.StatsOptions()), examples

    def compare(self, older: str, newer: str) -> list[Anomaly]:
        """The anomalies of columns that drifted."""
        (before, _), (now, examples) = self._found[older], self._found[newer]
        validation = Validation(self._root / f"{newer} since {older}", before, "company")
        found = validation.run(now, DRIFT, "warn", splits=["train"], examples=examples)
        return [one for one in found if one.is_drift]


ROWS, DAYS = 200, 20

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def spans(tmp_path_factory: pytest.TempPathFactory) -> Spans:
    """Days of the same data, and days of which a column is in another unit."""
    made = Spans(tmp_path_factory.mktemp("spans"))
    for day in range(DAYS + 1):
        made.add(f"day {day}", trips(day, ROWS))
    for name in NUMBERS:
        made.add(name, trips(99, ROWS, **{name: lambda values: values * 10}))
    return made


def test_clean_spans_have_no_drift(spans: Spans) -> None:
    found = [spans.compare(f"day {day}", f"day {day + 1}") for day in range(DAYS)]
    assert [str(one) for anomalies in found for one in anomalies] == []


@pytest.mark.parametrize("name", NUMBERS)
def test_column_times_ten_drifts_in_the_first_span(spans: Spans, name: str) -> None:
    (found,) = spans.compare("day 0", name)
    assert (found.column, found.splits) == (name, ("train",))
    assert "span 6: mean " in found.description
