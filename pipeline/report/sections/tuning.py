"""The section about the search: its trials as parallel coordinates and as a leaderboard."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from pipeline.report import charts
from pipeline.report.blocks import Block, Cell, Code, Figure, Section, Table
from pipeline.report.source import ReportSource
from pipeline.report.text import NONE, is_number, number, percent, shorten
from trainer_module.errors import counted
from trainer_module.tuning.space import as_sections

MAX_AXES = 7
"""The maximum number of parameters in the parallel coordinates."""
MAX_LINES = 60
"""The maximum number of trials in the parallel coordinates, beginning with the best."""
MIN_TRIALS = 10
"""The smallest number of trials from which importances of parameters are computed."""

Trial = Mapping[str, Any]


def make_tuning(source: ReportSource) -> Section | None:
    """Returns the section of the search, or None if there was no search."""
    tuning = source.summary.tuning
    trials = [trial for trial in tuning.get("trials", []) if isinstance(trial, Mapping)]
    if not trials:
        return None
    objective = shorten(tuning.get("objective", "objective"), 60)
    blocks: list[Block] = []
    finished = [trial for trial in trials if is_number(trial.get("value"))]
    if figure := _parallel(finished, tuning.get("best"), objective):
        blocks.append(figure)
    blocks.append(_leaderboard(trials, tuning.get("best"), objective))
    if len(finished) >= MIN_TRIALS:
        blocks.append(_importances(finished, objective))
    if values := tuning.get("values"):
        text = yaml.safe_dump(as_sections(values), sort_keys=False, allow_unicode=True)
        blocks.append(Code("The best values as YAML", text))
    lead = f"{counted(len(trials), 'trial')} for {objective}; the best trial comes first."
    return Section("tuning", "Tuning", blocks, lead)


def _parameters(trials: Sequence[Trial]) -> list[str]:
    """Returns the parameters of the trials, those with most values first."""
    names = dict.fromkeys(name for trial in trials for name in trial.get("values", {}))
    return sorted(names, key=lambda name: -len({_text(trial, name) for trial in trials}))


def _text(trial: Trial, name: str) -> str:
    value = trial.get("values", {}).get(name)
    return NONE if value is None else number(value) if is_number(value) else shorten(value, 24)


def _positions(trials: Sequence[Trial], name: str) -> dict[int, float]:
    """Returns the position of each trial on the axis of a parameter, from 0 to 1.

    Positive numbers over more than a factor of 20 have a logarithmic axis.
    """
    values = [trial.get("values", {}).get(name) for trial in trials]
    known = [value for value in values if value is not None]
    if known and all(map(is_number, known)):
        low, high = min(known), max(known)
        scale = math.log if low > 0 and high > 20 * low else float
        start, span = scale(low), scale(high) - scale(low)
        pairs = [(i, value) for i, value in enumerate(values) if value is not None]
        return {i: (scale(value) - start) / span if span else 0.5 for i, value in pairs}
    names = sorted({str(value) for value in known})
    places = {text: (i + 0.5) / len(names) for i, text in enumerate(names)}
    return {i: places[str(value)] for i, value in enumerate(values) if value is not None}


def _parallel(trials: Sequence[Trial], best: Any, objective: str) -> Figure | None:
    trials = trials[:MAX_LINES]
    names = _parameters(trials)[: MAX_AXES - 1]
    if len(trials) < 2 or not names:
        return None
    axes = {name: _positions(trials, name) for name in names}
    axes[objective] = _positions(
        [{"values": {objective: trial["value"]}} for trial in trials], objective
    )
    titles = {name: shorten(name, 22) for name in axes}
    rows: list[dict[str, Any]] = []
    for name, positions in axes.items():
        labelled: set[float] = set()
        for i, position in positions.items():
            text = number(trials[i]["value"]) if name == objective else _text(trials[i], name)
            # Labels are at least a tenth of the axis apart.
            is_apart = all(abs(position - other) > 0.1 for other in labelled)
            labelled |= {position} if is_apart else set()
            rows.append(
                {
                    "axis": titles[name],
                    "position": position,
                    "label": text if is_apart else "",
                    "trial": i,
                    "rank": 1 - i / len(trials),
                    "kind": "series-2" if trials[i].get("number") == best else "series-1",
                }
            )
    svg = charts.parallel(rows, list(titles.values()))
    message = f"The values of {counted(len(trials), 'trial')} and their {objective}."
    note = "A line is a trial; better trials are darker, and the best trial is orange."
    return Figure("Trials", message, svg, note=note)


def _leaderboard(trials: Sequence[Trial], best: Any, objective: str) -> Table:
    names = _parameters(trials)[:12]
    rows: list[list[str | Cell]] = []
    for trial in trials:
        is_best = trial.get("number") == best
        value = trial.get("value")
        again = trial.get("again") or {}
        result = number(value) if is_number(value) else shorten(trial.get("state", NONE), 40)
        if again:
            result += f" (repeated {number(statistics.fmean(again.values()))})"
        title = f"{trial.get('number', NONE)}{' (best)' if is_best else ''}"
        cells = [_text(trial, name) for name in names]
        epochs = number(trial.get("epochs"))
        rows.append([title, Cell(result, "good" if is_best else ""), epochs, *cells])
    head = ["trial", objective, "epochs", *(shorten(name, 40) for name in names)]
    return Table.capped("Leaderboard", head, rows, limit=30)


def _importances(trials: Sequence[Trial], objective: str) -> Table:
    """Returns how much of the objective's variance each parameter explains alone.

    The share is eta squared, corrected for the number of groups (epsilon squared, Kelley 1935):
    1 - (n - 1) / (n - k) (1 - eta^2), for n trials in k groups; numbers are in three groups of
    equally many trials.
    """
    rows = []
    for name in _parameters(trials):
        groups = _groups(trials, name)
        n, k = sum(map(len, groups)), len(groups)
        if k < 2 or n - k < 1:
            continue
        values = [value for group in groups for value in group]
        total = statistics.pvariance(values) * n
        between = sum(
            len(group) * (statistics.fmean(group) - statistics.fmean(values)) ** 2
            for group in groups
        )
        share = 1 - (n - 1) / (n - k) * (1 - between / total) if total else 0.0
        rows.append((max(0.0, share), name))
    rows.sort(reverse=True)
    cells = [[shorten(name, 80), percent(share)] for share, name in rows]
    caption = f"Importances of parameters: share of the variance of {objective}"
    return Table.capped(caption, ["parameter", "share"], cells, is_folded=True)


def _groups(trials: Sequence[Trial], name: str) -> list[list[float]]:
    known = [trial for trial in trials if trial.get("values", {}).get(name) is not None]
    if known and all(is_number(trial["values"][name]) for trial in known):
        known.sort(key=lambda trial: trial["values"][name])
        n = len(known)
        parts = [known[n * i // 3 : n * (i + 1) // 3] for i in range(3)]
    else:
        by_value: dict[str, list[Trial]] = {}
        for trial in known:
            by_value.setdefault(str(trial["values"][name]), []).append(trial)
        parts = list(by_value.values())
    return [[trial["value"] for trial in part] for part in parts if part]
