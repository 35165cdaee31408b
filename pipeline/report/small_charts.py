"""Small charts beside each other: distributions of columns, and effects of columns."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import escape

from components.evaluator.explanation.record import Bins, Effect
from pipeline.report.text import shorten, visible

WIDTH, HEIGHT = 160, 52
"""The size of a chart in units of its view box."""
_LABEL = 62
"""The width of the labels of categories."""
_ROW = 15
"""The height of the row of a category."""


def _svg(height: float, content: str, stretch: bool = False) -> str:
    aspect = ' preserveAspectRatio="none"' if stretch else ""
    size = ' height="64"' if stretch else ""
    return f'<svg viewBox="0 0 {WIDTH} {height:g}"{size}{aspect}>{content}</svg>'


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _axis(height: float) -> str:
    return f'<path class="small-axis" d="M0,{height:g}H{WIDTH}"/>'


def histograms(splits: Sequence[Bins | None]) -> str:
    """Returns the densities of a column, a line for each split; the first is filled.

    Args:
      splits: the histogram of each split, or None for a split without values.
    """
    bounds = [edge for bins in splits if bins for edge in bins.edges if math.isfinite(edge)]
    low, high = min(bounds, default=0.0), max(bounds, default=1.0)
    densities = [_densities(bins) if bins else [] for bins in splits]
    top = max((density for one in densities for *_, density in one), default=0.0) or 1.0
    parts = []
    for i, steps in enumerate(densities):
        points: list[tuple[float, float]] = []
        for left, right, density in steps:
            y = HEIGHT - (HEIGHT - 2) * density / top
            points += [(_position(left, low, high), y), (_position(right, low, high), y)]
        if points:
            parts.append(_area(points, i + 1, filled=i == 0))
    return _svg(HEIGHT + 1, "".join(parts) + _axis(HEIGHT), stretch=True)


def _densities(bins: Bins) -> list[tuple[float, float, float]]:
    """Returns the left edge, the right edge and the density of each bin with finite edges."""
    total = math.fsum(bins.counts) or 1.0
    pairs = zip(bins.edges, bins.edges[1:], bins.counts, strict=False)
    finite = [(a, b, n) for a, b, n in pairs if math.isfinite(a) and math.isfinite(b)]
    widths = [b - a for a, b, _ in finite if b > a]
    # A bin for a single value is as wide as the narrowest other bin.
    narrowest = min(widths, default=1.0)
    return [(a, b, n / total / max(b - a, narrowest)) for a, b, n in finite]


def _position(value: float, low: float, high: float) -> float:
    return WIDTH * (value - low) / (high - low) if high > low else WIDTH / 2


def _area(points: Sequence[tuple[float, float]], series: int, *, filled: bool) -> str:
    line = f'<path class="small-line" stroke="var(--series-{series})" d="{_path(points)}"/>'
    if not filled:
        return line
    closed = [(points[0][0], HEIGHT), *points, (points[-1][0], HEIGHT)]
    return f'<path fill="var(--series-{series})" opacity=".2" d="{_path(closed)}"/>{line}'


def categories(names: Sequence[str], shares: Sequence[Sequence[float]]) -> str:
    """Returns the shares of categories, a bar for each split in the row of a category.

    Args:
      shares: the share of each category, by split.
    """
    top = max((share for one in shares for share in one), default=0.0) or 1.0
    thickness = min(5.0, (_ROW - 4) / max(1, len(shares)))
    parts = []
    for row, name in enumerate(names):
        parts.append(_label(name, row))
        for i, of_split in enumerate(shares):
            width = (WIDTH - _LABEL - 4) * of_split[row] / top
            y = row * _ROW + (_ROW - thickness * len(shares)) / 2 + thickness * i
            parts.append(
                f'<rect x="{_LABEL + 4}" y="{y:.1f}" width="{width:.1f}" '
                f'height="{thickness * 0.85:.1f}" fill="var(--series-{i + 1})"/>'
            )
    return _svg(max(1, len(names)) * _ROW, "".join(parts))


def _label(name: str, row: int) -> str:
    text = escape(shorten(visible(shorten(name, 12)), 12))
    return (
        f'<text x="{_LABEL}" y="{row * _ROW + 11}" font-size="10" text-anchor="end" '
        f'fill="var(--muted)">{text}</text>'
    )


def effect(of: Effect, low: float, high: float) -> str:
    """Returns the mean prediction by the value of a column, with the quartiles.

    Args:
      of: the effect of the column.
      low: the lowest prediction of all charts.
      high: the highest prediction of all charts.
    """
    if of.is_numeric:
        return _curve(of, low, high)
    parts = []
    span = WIDTH - _LABEL - 12
    for row, (value, ends) in enumerate(zip(_names(of), _finite_rows(of), strict=False)):
        answer, first, third = (_LABEL + 8 + _share(end, low, high) * span for end in ends)
        y = row * _ROW + 7.5
        parts.append(
            f'{_label(value, row)}<path class="small-axis" d="M{first:.1f},{y}H{third:.1f}"/>'
            f'<circle cx="{answer:.1f}" cy="{y}" r="3" fill="var(--series-1)"/>'
        )
    return _svg(max(1, len(parts)) * _ROW, "".join(parts))


def _names(of: Effect) -> list[str]:
    return ["missing" if value is None else str(value) for value in of.values]


def _finite_rows(of: Effect) -> list[tuple[float, float, float]]:
    return list(zip(of.answers, of.low, of.high, strict=False))


def _share(value: float, low: float, high: float) -> float:
    return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.5


def _curve(of: Effect, low: float, high: float) -> str:
    rows = zip(of.values, _finite_rows(of), strict=False)
    known = [(float(v), ends) for v, ends in rows if isinstance(v, int | float)]
    left, right = min(v for v, _ in known), max(v for v, _ in known)

    def points(which: int) -> list[tuple[float, float]]:
        return [
            (_position(v, left, right), HEIGHT - (HEIGHT - 2) * _share(ends[which], low, high))
            for v, ends in known
        ]

    band = _path([*points(1), *reversed(points(2))])
    fill = f'<path fill="var(--series-1)" opacity=".18" d="{band}"/>'
    line = f'<path class="small-line" stroke="var(--series-1)" d="{_path(points(0))}"/>'
    return _svg(HEIGHT + 1, fill + line + _axis(HEIGHT), stretch=True)
