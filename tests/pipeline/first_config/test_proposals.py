"""The config that `init` proposes for data of many kinds passes the checks of `plan` unedited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.config.loading import load_config
from pipeline.first_config import beginnings
from pipeline.first_config.proposal import Proposal
from pipeline.first_config.proposing import propose
from pipeline.first_config.rendering import render_config
from pipeline.layout import Layout
from pipeline.run_context import resolve_run
from pipeline.runs.run import check_new_data
from tests.support.some_data import KINDS, Kind
from trainer_module.errors import DataError


def value_at(config: dict[str, Any], key: str) -> Any:
    """The value of a dotted key."""
    value: Any = config
    for part in key.split("."):
        value = value[part]
    return value


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.id)
def test_proposed_config_passes_plan_unedited(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    proposal = propose(kind.write(tmp_path), None, lambda candidates: candidates[0])
    text = render_config(proposal, "scopeline init data")
    Path("config.yaml").write_text(text)
    if proposal.table:
        Path(proposal.config["data"]["path"]).write_text(proposal.table)
    found = yaml.safe_load(text)
    assert {key: value_at(found, key) for key in kind.expected} == kind.expected
    config = load_config(Path("config.yaml"))
    check_new_data(resolve_run(config, Layout.of(config.name, config.push, tmp_path / "output")))
    assert text.startswith("# yaml-language-server: $schema=config.schema.json\n")
    assert text.replace("\n", "").isprintable()
    assert 8 <= len(text.splitlines()) <= 26


@pytest.mark.slow
def test_rows_sorted_by_the_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = (f"{row % 97}.5,{'abc'[row // 20_000]}\n" for row in range(60_000))
    Path("a.csv").write_text(f"x,kind\n{''.join(rows)}")
    proposal = propose("a.csv", None, lambda candidates: candidates[0])
    assert (proposal.config["data"]["label"], proposal.config["task"]) == ("kind", "multiclass")
    assert proposal.rows == "20,000 of 60,000 rows"
    monkeypatch.setattr(beginnings, "MAX_BYTES", 20_000)
    with pytest.raises(DataError, match=r"'a' in all of the .* rows that were read: if the rows"):
        propose("a.csv", "kind", lambda candidates: candidates[0])


@pytest.mark.parametrize("name", ["Price\n(EUR)", "? a: #b"])
def test_names_of_columns_are_one_line_of_yaml(name: str) -> None:
    config = {"data": {"label": name}, "features": {name: {"type": "text"}}}
    comments = {f"features.{name}": "sentences"}
    text = render_config(Proposal(config, comments), "scopeline init a.csv")
    assert yaml.safe_load(text) == config
    assert len(text.splitlines()) == 6


@pytest.mark.parametrize(("classes", "task"), [(2, "binary"), (3, "multiclass")])
def test_placeholder_among_numbers_is_no_class(
    classes: int, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    labels = (n % classes if n % 7 else "NA" for n in range(200))
    Path("a.csv").write_text("x,y\n" + "".join(f"{n % 31}.5,{v}\n" for n, v in enumerate(labels)))
    config = propose("a.csv", "y", lambda candidates: "").config
    assert config["task"] == task
    assert config["data"]["csv"] == {"missing_values": ["NA"]}
    assert config["data"]["unlabelled"] == "skip"


@pytest.mark.parametrize(
    ("name", "values", "task"),
    [
        ("Risk", ["High", "Low", "Medium"], ["Low", "Medium", "High"]),
        ("stars", [1, 2, 5], [1, 2, 3, 4, 5]),
        ("sentiment", ["positive", "negative", "neutral"], "multiclass"),
        ("price", ["low", "high"], "binary"),
    ],
)
def test_classes_of_a_known_order(
    name: str, values: list[Any], task: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = (f"{n * 37 % 101}.5,{values[n % len(values)]}\n" for n in range(60))
    Path("a.csv").write_text(f"x,{name}\n{''.join(rows)}")
    found = propose("a.csv", None, lambda candidates: candidates[0]).config["task"]
    assert found == ({"kind": "ordinal", "order": task} if isinstance(task, list) else task)


@pytest.mark.parametrize(
    ("header", "label"),
    [
        ("Zielgröße,Länge", "Zielgröße"),
        ("Étiquette,longueur", "Étiquette"),
        ("MSSubClass,SalePrice", "SalePrice"),
    ],
)
def test_label_is_found_by_its_name(
    header: str, label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text(
        f"{header},last\n" + "".join(f"{n % 7},{n % 2},{n}.5\n" for n in range(80))
    )
    config = propose("a.csv", None, lambda candidates: candidates[0]).config
    assert config["data"]["label"] == label
