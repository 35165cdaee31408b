"""What a search leaves for people: all trials, the best first."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from tfx.dsl.io import fileio

from components.tuner.finals import choose
from components.tuner.records import TrialRecord, ranked
from trainer_module.tuning.plan import Objective

LEADERBOARD_FILE = "leaderboard.json"
"""In the artifact of the results."""


def summarize(
    trials: Sequence[TrialRecord], objective: Objective, is_automatic: bool
) -> dict[str, Any]:
    """The leaderboard as JSON: which trial is trained with, and all of them, the best first."""
    best = choose(trials, objective, is_automatic)
    return {
        "objective": objective.name,
        "higher_is_better": objective.higher_is_better,
        "best": None if best is None else best.number,
        "values": {} if best is None else best.values,
        "trials": [
            trial.model_dump(mode="json", exclude_defaults=True)
            for trial in ranked(trials, objective)
        ],
        "epochs": sum(trial.epochs for trial in trials),
        "seconds": round(sum(trial.seconds for trial in trials), 3),
    }


def write_leaderboard(folder: str, leaderboard: Mapping[str, Any]) -> None:
    """Writes the leaderboard into the folder of the results."""
    with fileio.open(posixpath.join(folder, LEADERBOARD_FILE), "w") as file:
        file.write(json.dumps(leaderboard, indent=2))


def read_leaderboard(folder: str) -> dict[str, Any]:
    """The leaderboard in the folder of the results; empty if there is none."""
    path = posixpath.join(folder, LEADERBOARD_FILE)
    if not fileio.exists(path):
        return {}
    with fileio.open(path, "r") as file:
        return dict(json.loads(file.read()))
