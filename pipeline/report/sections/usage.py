"""The section about what the model uses: importances and effects of columns."""

from __future__ import annotations

from collections.abc import Sequence

from components.evaluator.explanation.record import (
    EFFECTS,
    IMPORTANCES,
    Effect,
    Explanation,
    Importance,
)
from pipeline.report import charts, small_charts
from pipeline.report.blocks import Block, Columns, Figure, Multiples, Note, Section, Table
from pipeline.report.sections.evaluation import failures
from pipeline.report.source import ReportSource
from pipeline.report.text import interval, is_number, listed, number, percent, shorten
from trainer_module.errors import as_key

MAX_BARS = 15
"""The maximum number of columns in the chart of importances."""


def make_usage(source: ReportSource) -> Section | None:
    """Returns the section of importances, or None if fewer than two columns were to be measured."""
    explanation = source.details.explanation
    if explanation is None:
        return None
    notes = failures(explanation)
    failed = [notes[part] for part in (IMPORTANCES, EFFECTS) if part in notes]
    if not (len(explanation.importances) > 1 or explanation.effects or failed):
        return None
    blocks: list[Block] = [*failed]
    if (leak := explanation.suspected_leak) is not None:
        blocks.append(_leak(leak))
    if explanation.importances:
        blocks.append(_importances(explanation))
    private = source.private
    effects = [_finite(effect) for effect in explanation.effects if effect.column not in private]
    if effects := [effect for effect in effects if effect.values]:
        blocks.append(_effects(effects, explanation.output))
    strongest = [one.column for one in explanation.importances if one.low > 0]
    lead = f"The model uses most: {listed(strongest, 4)}." if strongest else ""
    return Section("usage", "What the model uses", blocks, lead)


def _leak(column: str) -> Note:
    return Note(
        f"The column {shorten(column, 80)} alone carries nearly all that the model knows. If its "
        "values are not known before the label, the metrics of this report cannot be reached in "
        "production; then exclude it: "
        f"features: {{{as_key(shorten(column, 80))}: {{type: ignore}}}}",
        "warn",
        "Suspected leak",
    )


def _importances(explanation: Explanation) -> Columns:
    rows = [
        {
            "name": shorten(one.column, 26),
            "value": one.increase,
            "low": one.low,
            "high": one.high,
            "kind": "series-2" if one.column == explanation.suspected_leak else "series-1",
        }
        for one in explanation.importances[:MAX_BARS]
        if is_number(one.increase)
    ]
    title = f"increase of {explanation.loss}"
    first = explanation.importances[0]
    message = (
        f"{title} if a column's values are permuted. The largest: {shorten(first.column, 60)}, "
        f"{number(first.increase)} ({percent(first.share)} of all)."
    )
    note = (
        f"{title.capitalize()} if the values of a column are permuted, with the interval at 95%. "
        "Columns that carry the same knowledge share their importance."
    )
    svg = charts.intervals(rows, title, reference=0.0)
    figure = Figure("Importances", message, svg, note=note)
    return Columns([figure, _importances_table(explanation.importances)])


def _importances_table(importances: Sequence[Importance]) -> Table:
    rows = [
        [shorten(one.column, 60), number(one.increase), interval((one.low, one.high))]
        for one in importances
    ]
    head = ["column", "increase", "interval"]
    return Table.capped("Importances of columns", head, rows, is_folded=len(rows) > MAX_BARS)


def _finite(effect: Effect) -> Effect:
    """Returns an effect without the values whose predictions are not finite."""
    columns = (effect.values, effect.answers, effect.low, effect.high, effect.rows)
    kept = [row for row in zip(*columns, strict=False) if all(map(is_number, row[1:4]))]
    if effect.is_numeric:
        kept = [row for row in kept if is_number(row[0])]
    values, answers, low, high, rows = (
        (list(column) for column in zip(*kept, strict=True)) if kept else ([], [], [], [], [])
    )
    return effect.model_copy(
        update={"values": values, "answers": answers, "low": low, "high": high, "rows": rows}
    )


def _effects(effects: Sequence[Effect], output: str) -> Multiples:
    low = min(min(effect.low + effect.answers) for effect in effects)
    high = max(max(effect.high + effect.answers) for effect in effects)
    figures = []
    for effect in effects:
        ends = (min(effect.answers), max(effect.answers))
        shown = effect.model_copy(update={"values": effect.values[:8]})
        shown = shown if not effect.is_numeric else effect
        explained = shorten(effect.output or output, 60)
        note = f"{number(effect.values[0])} to {number(effect.values[-1])} · " * effect.is_numeric
        note += f"{explained if effect.output != output else 'mean'} {interval(ends)}"
        message = f"{shorten(effect.column, 60)}: {explained} {interval(ends)}"
        svg = small_charts.effect(shown, low, high)
        figures.append(Figure(shorten(effect.column, 40), message, svg, note=note))
    note = (
        f"The mean {output} by the value of a column, with the other columns unchanged; the band "
        f"shows the quartiles. All charts have the same scale, {interval((low, high))}."
    )
    return Multiples("Effects", figures, note=note)
