"""What the cache of a family's Trainer follows from, and which keys it would not read."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from tfx.dsl.components.base.base_node import BaseNode

from pipeline.config.loading import check_rules, given_keys_are_read
from pipeline.config.settings import PipelineConfig
from pipeline.config.user_code import CODE_KEY
from pipeline.data.files import locate_data
from pipeline.graph.create import create_pipeline
from pipeline.layout import Layout
from pipeline.run_context import RunContext
from trainer_module.families import FAMILIES, Family
from trainer_module.settings.tasks import TASKS, LearningTask, Metric


class ToyTask(LearningTask):
    """It learns nothing."""

    kind: Literal["toy"]
    family: ClassVar[str] = "toys"

    def metrics(self) -> dict[str, Metric]:
        return {"distance": Metric(higher_is_better=False)}

    def usual_metrics(self) -> tuple[str, ...]:
        return ("distance",)


class ToyFamily(Family):
    """Its functions are never called."""

    reads = frozenset({"train", "model"})
    run_fn = "toy_code.run_fn"
    measure = "toy_code.measure"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(FAMILIES, "toys", f"{__name__}.ToyFamily")
    monkeypatch.setitem(TASKS, "toy", f"{__name__}.ToyTask")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "toy_code.py").write_text("def run_fn(a): ...\n\n\ndef measure(a, b): ...\n")
    (tmp_path / "toy_loss.py").write_text("def loss(): ...\n")
    (tmp_path / "toy.csv").write_text("x,y\n1,2\n")
    (tmp_path / "weights.h5").write_text("weights")
    return tmp_path


def config_of(folder: Path, **sections: Any) -> PipelineConfig:
    data = {"format": "csv", "path": str(folder / "toy.csv")}
    return PipelineConfig.model_validate({"name": "toy", "data": data, "task": "toy", **sections})


def trainer(folder: Path, **sections: Any) -> dict[str, Any]:
    config, layout = config_of(folder, **sections), Layout(folder / "output", "toy")
    context = RunContext(config, layout, locate_data(config.data, layout))
    nodes: dict[str, BaseNode] = {n.id: n for n in create_pipeline(context).components}
    return nodes["Trainer"].exec_properties


@pytest.mark.parametrize(
    ("file", "sections"),
    [
        ("toy_code.py", {}),
        ("toy_loss.py", {"model": {"kind": "toy_loss.loss"}}),
    ],
)
def test_settings_of_a_family_are_in_its_cache_key(
    folder: Path, file: str, sections: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    before = trainer(folder, **sections)
    assert trainer(folder, **sections) == before
    assert CODE_KEY in before["custom_config"]
    (folder / file).write_text((folder / file).read_text() + "# another\n")
    assert trainer(folder, **sections) != before


def test_a_function_that_trains_is_the_familys(folder: Path) -> None:
    (issue,) = given_keys_are_read(config_of(folder, train={"run_fn": "toy_loss.loss"}))
    assert str(issue.path) == "train.run_fn"
    assert list(given_keys_are_read(config_of(folder, train={"epochs": 3}))) == []


def test_missing_code_of_a_family_is_refused(folder: Path) -> None:
    assert list(check_rules(config_of(folder, train={"loss": "toy_loss.loss"}))) == []
    (issue,) = check_rules(config_of(folder, train={"loss": "nowhere.loss"}))
    assert issue.path == "train.loss"
    (folder / "toy_code.py").write_text("def run_fn(a): ...\n")
    (issue,) = check_rules(config_of(folder))
    assert str(issue).startswith("task (measure): found 'toy_code.measure'")
