"""The section about the steps: their graph, their cost, their artifacts and their origin."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from pipeline.config.yaml_core import ConfigDumper
from pipeline.records.details import Lineage, StepCost
from pipeline.records.summary import ComponentSummary, State
from pipeline.report import charts
from pipeline.report.blocks import Block, Cell, Code, Facts, Figure, Section, Table
from pipeline.report.source import ReportSource
from pipeline.report.text import NONE, duration, listed, number, shorten, size
from trainer_module.errors import counted

_KIND = {
    State.RAN: "good",
    State.CACHED: "muted",
    State.SKIPPED: "warn",
    State.FAILED: "bad",
    State.INTERRUPTED: "warn",
}
_COLOUR = {
    State.RAN: "series-1",
    State.CACHED: "line-strong",
    State.SKIPPED: "warn",
    State.FAILED: "bad",
    State.INTERRUPTED: "warn",
}
_OTHER = "not in this run"
_COMMIT = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{28}\b")
"""The hash of a commit, of which the beginning is enough."""


def make_steps(source: ReportSource) -> Section | None:
    """Returns the section of the steps with their cost, or None if no step began."""
    components = source.summary.components
    if not components:
        return None
    blocks: list[Block] = []
    lineage = source.details.lineage
    if lineage is not None and lineage.edges:
        blocks.append(_graph(lineage, components))
    if len(components) > 1:
        blocks.append(_bars(source))
    blocks.append(_costs(source, is_folded=len(components) > 1))
    return Section("steps", "Steps and cost", blocks)


def make_lineage(source: ReportSource) -> Section | None:
    """Returns the section of artifacts, fingerprints, versions and the config."""
    lineage = source.details.lineage
    blocks: list[Block] = []
    if lineage is not None:
        code = _COMMIT.sub(r"\1", lineage.code)
        pairs = [("config", lineage.config), ("code", code), *lineage.machine.items()]
        facts = [(shorten(name, 40), shorten(value)) for name, value in pairs if value]
        if facts:
            blocks.append(Facts(facts))
        if lineage.artifacts:
            blocks.append(_artifacts(lineage))
        if lineage.versions:
            rows = [[name, version] for name, version in sorted(lineage.versions.items())]
            caption = f"Versions of {counted(len(rows), 'package')}"
            blocks.append(Table.capped(caption, ["package", "version"], rows, 2, is_folded=True))
    if source.details.config:
        blocks.append(Code("Config as run", _as_yaml(source.details.config)))
    return Section("lineage", "Lineage", blocks) if blocks else None


def _as_yaml(config: Mapping[str, Any]) -> str:
    text = yaml.dump(
        dict(config), Dumper=ConfigDumper, sort_keys=False, allow_unicode=True, width=100
    )
    return shorten(text, 50_000)


def levels(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Returns the level of each component: the length of the longest path that leads to it.

    Args:
      names: the components in the order in which they run.
      edges: the pairs of components of which the second reads an artifact of the first. Pairs
        against the order are ignored.
    """
    order = {name: i for i, name in enumerate(names)}
    found = dict.fromkeys(names, 0)
    for name in names:
        before = [a for a, b in edges if b == name and a in order and order[a] < order[name]]
        found[name] = max((found[a] + 1 for a in before), default=0)
    return found


def _graph(lineage: Lineage, components: Sequence[ComponentSummary]) -> Figure:
    names = [component.name for component in components]
    level = levels(names, lineage.edges)
    places: dict[str, tuple[int, int]] = {}
    for name in names:
        row = sum(1 for x, _ in places.values() if x == level[name])
        places[name] = (level[name], row)
    nodes = [
        {
            "name": one.name,
            "x": places[one.name][0],
            "y": places[one.name][1],
            "detail": _detail(one),
            "kind": _COLOUR[one.state],
        }
        for one in components
    ]
    edges = _direct(lineage.edges, places)
    lines = [
        dict(zip(("x", "y", "x2", "y2"), (*places[a], *places[b]), strict=True)) for a, b in edges
    ]
    message = ". ".join(f"{one.name} {one.state.value}" for one in components)
    note = "A line joins a step with the steps on its right that read its artifacts. "
    note += "Blue steps ran, grey steps were cached, orange steps skipped; red steps failed."
    return Figure("Graph of the run", message, charts.graph(nodes, lines), note=note, is_wide=True)


def _direct(
    edges: Sequence[tuple[str, str]], places: Mapping[str, tuple[int, int]]
) -> list[tuple[str, str]]:
    """Returns the edges between known components that no longer path replaces."""
    known = {(a, b) for a, b in edges if a in places and b in places and a != b}
    after: dict[str, set[str]] = {}
    for a, b in known:
        after.setdefault(a, set()).add(b)

    def reaches(start: str, end: str) -> bool:
        seen, waiting = {start}, [start]
        while waiting:
            for following in after.get(waiting.pop(), ()):
                if following == end:
                    return True
                if following not in seen:
                    seen.add(following)
                    waiting.append(following)
        return False

    return sorted(
        (a, b) for a, b in known if not any(c != b and reaches(c, b) for c in after.get(a, ()))
    )


def _detail(one: ComponentSummary) -> str:
    return (
        f"{one.state.value} {duration(one.seconds)}" if one.state.has_duration else one.state.value
    )


def _bars(source: ReportSource) -> Figure:
    """Returns the time of each step, and its cost if this was measured."""
    components, costs = source.summary.components, source.details.costs
    panels: dict[str, Callable[[ComponentSummary], tuple[float | None, str]]] = {
        "time": lambda one: (
            (one.seconds, duration(one.seconds))
            if one.state.has_duration
            else (None, one.state.value)
        )
    }
    if costs:
        panels["CPU"] = lambda one: _cost(costs, one, "cpu_seconds", duration)
        panels["peak memory"] = lambda one: _cost(costs, one, "peak_bytes", size)
        panels["written"] = lambda one: _cost(costs, one, "written_bytes", size)
    rows: list[dict[str, Any]] = []
    for panel, read in panels.items():
        for one in components:
            value, text = read(one)
            row = {"panel": panel, "name": one.name, "value": value or 0, "text": text}
            rows.append(row | {"kind": _COLOUR[one.state]})
    longest = max(components, key=lambda one: one.seconds)
    message = f"Time by step. The longest: {longest.name}, {duration(longest.seconds)}."
    svg = charts.bars(rows, list(panels), 820 if costs else charts.WIDTH)
    return Figure("Cost by step" if costs else "Time by step", message, svg, is_wide=bool(costs))


def _cost(
    costs: Mapping[str, StepCost], one: ComponentSummary, field: str, show: Callable[[object], str]
) -> tuple[float | None, str]:
    value = getattr(costs.get(one.name), field, None)
    return value, "" if value is None else show(value)


def _costs(source: ReportSource, *, is_folded: bool) -> Table:
    """Returns the table of the states, times and costs of steps."""
    costs = source.details.costs
    has_prices = any(cost.price is not None for cost in costs.values())
    head = ["step", "state", "time"]
    head += ["CPU", "peak memory", "written"] if costs else []
    head += ["price"] if has_prices else []
    rows: list[list[str | Cell]] = []
    for one in source.summary.components:
        cost = costs.get(one.name)
        row: list[str | Cell] = [one.name, Cell(one.state.value, _KIND[one.state])]
        row.append(duration(one.seconds) if one.state.has_duration else NONE)
        if costs:
            row += _cost_cells(cost)
        if has_prices:
            row.append(number(cost.price) if cost else NONE)
        rows.append(row)
    if costs:
        total: list[str | Cell] = ["all", "", duration(source.summary.seconds)]
        total.append(duration(sum(cost.cpu_seconds for cost in costs.values())))
        total.append(size(max(cost.peak_bytes for cost in costs.values())))
        total.append(size(sum(cost.written_bytes for cost in costs.values())))
        if has_prices:
            total.append(number(sum(cost.price or 0.0 for cost in costs.values())))
        rows.append(total)
    return Table.capped("Steps", head, rows, 2, is_folded=is_folded)


def _cost_cells(cost: StepCost | None) -> list[str | Cell]:
    if cost is None:
        return [NONE] * 3
    return [duration(cost.cpu_seconds), size(cost.peak_bytes), size(cost.written_bytes)]


def _artifacts(lineage: Lineage) -> Table:
    rows = [
        [
            str(one.id),
            one.type,
            one.producer or _OTHER,
            listed(one.consumers, 6) or NONE,
            shorten(one.uri, 300),
            size(one.bytes) if one.bytes is not None else "deleted or remote",
        ]
        for one in lineage.artifacts
    ]
    head = ["id", "type", "made by", "read by", "where", "size"]
    caption = f"{counted(len(rows), 'artifact')}"
    return Table.capped(caption, head, rows, 5, is_folded=True)
