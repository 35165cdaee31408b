"""A search to be killed: its data, its config, and what its journal says of its trials."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import yaml

from tests.support.project import Project

TRIALS = 6
MODEL = """
import os
import signal

from trainer_module.families.supervised.models.tables import build_mlp


def build_model(problem, settings):
    if os.path.exists("out of memory"):
        os.remove("out of memory")
        os.kill(os.getpid(), signal.SIGKILL)
    if settings.options.get("memory") == "too much":
        os.kill(os.getpid(), signal.SIGKILL)
    return build_mlp(problem, settings)
"""
CONFIG: dict[str, Any] = {
    "name": "rooms",
    "data": {"format": "csv", "path": "rooms.csv", "label": "warm"},
    "task": "binary",
    "model": {"kind": "my_tuned_models.build_model", "hidden_units": [8]},
    "train": {"epochs": 3, "learning_rate": 0.01},
    "certificate": {"enabled": False},
    "tune": {
        "trials": TRIALS,
        "algorithm": "random",
        "prune": False,
        "space": {
            "train.learning_rate": {"log": [0.003, 0.1]},
            "train.batch_size": {"choice": [16, 32]},
            "model.options.memory": {"choice": ["some", "some more", "too much"]},
        },
    },
}


def write_rooms(project: Project, **tune: Any) -> None:
    """Writes the data, the model and the config, with other keys of `tune`."""
    generator = random.Random(7)  # noqa: S311
    rows = ["size,floor,warm"]
    for _ in range(300):
        size, floor = generator.uniform(5, 50), generator.choice(["low", "high"])
        rows.append(f"{size:.2f},{floor},{int(size < 25 or floor == 'high')}")
    (project.folder / "rooms.csv").write_text("\n".join(rows) + "\n")
    (project.folder / "my_tuned_models.py").write_text(MODEL)
    config = {**CONFIG, "tune": {**CONFIG["tune"], **tune}}
    (project.folder / "rooms.yaml").write_text(yaml.safe_dump(config))


def journal(project: Project) -> Path | None:
    """The file of the search that is under way."""
    return next((project.output / "rooms/pipeline_root/Tuner").glob("backups/*/journal.log"), None)


def kept_journal(project: Project) -> list[dict[str, Any]]:
    """The lines of the journal of the last search that came to its end."""
    boards = project.output.glob("**/tuner_results/*/leaderboard.json")
    last = max(boards, key=lambda board: int(board.parent.name))
    return [json.loads(line) for line in (last.parent / "journal.log").read_text().splitlines()]


def measured_again(lines: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """The trials that the lines of a journal say were measured again, and on which part."""
    keys = [key for line in lines for key in line.get("user_attr", {})]
    found = [key.split(":")[1:] for key in keys if key.startswith("again:")]
    return [(int(number), int(part)) for number, part in found]


def ends(lines: list[dict[str, Any]]) -> list[int]:
    """The trials of the lines of a journal by which trials have ended, in their order."""
    return [line["trial_id"] for line in lines if line.get("state") in (1, 2, 3)]


def ended(project: Project) -> list[int]:
    """The trials that have ended, in their order, of the search that is under way."""
    return ends(journal_lines(project))


def journal_lines(project: Project) -> list[dict[str, Any]]:
    """The lines of the journal of the search that is under way."""
    path = journal(project)
    lines = path.read_text().splitlines() if path else []
    # The last line may be half written.
    return [json.loads(line) for line in lines if line.endswith("}")]
