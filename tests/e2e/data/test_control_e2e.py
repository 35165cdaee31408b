"""A policy that learns by acting: pushed, certified and used."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tests.support import warm
from tests.support.project import Project, plain

pytestmark = pytest.mark.slow

CARTPOLE = Path(__file__).parents[3] / "configs" / "cartpole.yaml"
SMALL = {
    "model": {"kind": "dqn", "hidden_units": [16]},
    "train": {"steps": 640, "batch_size": 16},
    "task": {"kind": "control", "episodes": 20, "replay": {"begins": 64}},
    "evaluate": {"thresholds": {"return": {"min": 5}}},
}


@pytest.fixture(scope="module")
def screen(project: Project) -> str:
    """What a run showed."""
    config = yaml.safe_load(CARTPOLE.read_text()) | SMALL
    (project.folder / "cartpole.yaml").write_text(json.dumps(config))
    done = project.scopeline("run", "--config", "cartpole.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    return plain(done.stdout)


def test_a_policy_is_judged_by_its_episodes_and_pushed(project: Project, screen: str) -> None:
    summary = project.summary("cartpole")
    assert list(project.states("cartpole")) == ["Trainer", "Evaluator", "InfraValidator", "Pusher"]
    found = summary["metrics"]["return"]
    low, high = found["interval"]
    assert 5 < low < found["value"] < high
    assert any(
        "the lowest returns of the 20 evaluation episodes are" in note for note in summary["notes"]
    )
    assert "lowest returns of the 20 evaluation episodes" in screen
    assert summary["training"]["model"] == "dqn"
    certificate = summary["certificate"]
    assert {"serving_raw", "rest", "open_inference", "predict"} == certificate["ways"].keys()
    assert certificate["rows"] >= 8  # An episode.


def test_a_pushed_policy_answers_files(project: Project, screen: str) -> None:
    del screen
    observations = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
    lists, columns = project.folder / "lists.parquet", project.folder / "columns.csv"
    pq.write_table(pa.table({"observation": list(observations)}), lists)
    header = ",".join(f"observation_{place}" for place in range(1, 5))
    np.savetxt(columns, observations, delimiter=",", header=header, comments="", fmt="%.9g")
    found = [_answers(project, file) for file in (lists, columns)]
    values = np.array([found[0].column(f"q_values_{action}") for action in (1, 2)]).T
    assert values.shape == (7, 2)
    assert found[0].column("action").to_pylist() == values.argmax(axis=1).tolist()
    assert found[0].equals(found[1])


def _answers(project: Project, file: Path) -> pa.Table:
    (version,) = (project.output / "cartpole/serving/cartpole").iterdir()
    answers = file.with_name(f"{file.stem}_answers.parquet")
    given = ("--model", version, "--input", file, "--output", answers)
    done = warm.run(
        project.command("predict", *given)[:-2],
        cwd=project.folder,
        env=project.environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return pq.read_table(answers)
