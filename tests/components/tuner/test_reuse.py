"""Later runs reuse the best values of an earlier search."""

from __future__ import annotations

from pathlib import Path

import pytest
from tfx.types import standard_artifacts

from components.example_validator.anomalies import Anomaly, write_anomalies
from components.trainer.best_values import BEST_FILE, read_best, write_best
from components.tuner.component import reuse_best
from components.tuner.records import read_leaderboard, write_leaderboard


class Tuner:
    """The folder of the component, with what executions have left."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def folders(self, number: int) -> tuple[str, str]:
        made = [self._folder / name / str(number) for name in ("best", "results")]
        for path in made:
            path.mkdir(parents=True, exist_ok=True)
        return str(made[0]), str(made[1])

    def search(self, number: int, rate: float, search: str = "space") -> None:
        best, results = self.folders(number)
        write_best(best, {"train.learning_rate": rate}, search)
        write_leaderboard(results, {"trials": [{"number": number}]})


@pytest.fixture
def tuner(tmp_path: Path) -> Tuner:
    tuner = Tuner(tmp_path / "Tuner")
    tuner.search(9, 0.1)
    tuner.search(10, 0.2)
    tuner.search(11, 0.3, search="another space")
    return tuner


def anomalies(folder: Path, *found: Anomaly) -> list[standard_artifacts.ExampleAnomalies]:
    artifact = standard_artifacts.ExampleAnomalies()
    artifact.uri = str(folder / "anomalies")
    (folder / "anomalies").mkdir()
    write_anomalies(artifact, list(found))
    return [artifact]


def test_latest_search_of_the_same_space_is_reused(tuner: Tuner, tmp_path: Path) -> None:
    best, results = tuner.folders(12)
    odd = Anomaly(("train",), "fare", "is often 0", severe=False)
    assert reuse_best(anomalies(tmp_path, odd), best, results, "space")
    assert read_best(best) == {"train.learning_rate": 0.2}
    assert read_leaderboard(results) == {"trials": [{"number": 10}], "reused": "10"}
    best, results = tuner.folders(13)
    assert reuse_best([], best, results, "space"), "what was taken over can be taken over"
    assert read_best(best) == {"train.learning_rate": 0.2}


def test_drift_or_another_space_starts_a_new_search(tuner: Tuner, tmp_path: Path) -> None:
    best, results = tuner.folders(12)
    drift = Anomaly(("train",), "fare", "has drifted: 0.3", severe=False, is_drift=True)
    assert not reuse_best(anomalies(tmp_path, drift), best, results, "space")
    assert not reuse_best([], best, results, "a new space")
    assert not Path(best, BEST_FILE).exists()
