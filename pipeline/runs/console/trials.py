"""The trials of a search, as people see them: a line each, a table of the best, lines of YAML."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

import yaml
from rich.markup import escape
from rich.table import Table

from trainer_module.errors import counted
from trainer_module.tuning.space import as_sections

SHOWN = 5
"""Trials of the table; `summary.json` has them all."""


def describe_trial(trial: Mapping[str, Any]) -> str:
    """One trial that has ended, in a line.

    Args:
      trial: as `TrialRecord` dumps it, with the name of its `objective`, and whether it `is_best`
        so far.
    """
    number, state = trial["number"], trial["state"]
    value = "" if trial["value"] is None else f"{trial['objective']} {trial['value']:.4g}"
    epochs = counted(trial["epochs"], "epoch") if trial["epochs"] else ""
    best = "best so far" if trial["is_best"] else ""
    said = ", ".join(filter(None, (value, epochs, best, trial["cause"])))
    return f"trial {number:<3} {state:<7}  {said}; {_in_words(trial['values'])}"


def trials_table(tuning: Mapping[str, Any]) -> Table:
    """The best trials of a search, and what they had in place of what the config says."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2), header_style="bold")
    table.add_column("trial", justify="right")
    table.add_column(tuning["objective"], justify="right")
    table.add_column("epochs", justify="right")
    table.add_column("values")
    trials = tuning["trials"]
    for trial in trials[:SHOWN]:
        value, again = trial.get("value"), trial.get("again", {})
        shown = trial["state"] if value is None else f"{value:.4f}"
        table.add_row(
            str(trial["number"]),
            f"{shown} (again {statistics.fmean(again.values()):.4f})" if again else shown,
            str(trial.get("epochs", "")),
            escape(_in_words(trial.get("values", {}))),
        )
    if len(trials) > SHOWN:
        table.add_row("", "", "", f"and {len(trials) - SHOWN} more in summary.json")
    return table


def why_not_the_first(first: Mapping[str, Any], chosen: Mapping[str, Any]) -> str:
    """Of a search by itself: why another trial than the best one is trained with."""
    if parts := len(chosen.get("again", {})):
        of = f"where both were measured again, on {parts} other parts"
    else:
        of = f"on {chosen['examples']} examples"
    if chosen["number"]:
        return f"tune: trial {chosen['number']} is better than trial {first['number']} {of}"
    return (
        f"tune: trial {first['number']} is better by no more than chance {of}: the config stays as "
        "it stands"
    )


def show_values(values: Mapping[str, Any]) -> str:
    """The lines of a config that have the values; a comment where it has them as it stands."""
    if not values:
        return "# the config as it stands"
    lines: str = yaml.safe_dump(as_sections(values), sort_keys=False, default_flow_style=None)
    return lines.rstrip()


def _in_words(values: Mapping[str, Any]) -> str:
    if not values:
        return "as the config stands"
    return ", ".join(f"{path} {_short(value)}" for path, value in values.items())


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
