"""Charts of pages: Vega-Lite draws them as SVG. Colours are variables of the page's style sheet."""

from __future__ import annotations

import itertools
import re
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.report.text import is_number, visible

Spec = dict[str, Any]
Row = Mapping[str, Any]

SERIES = [f"var(--series-{i})" for i in range(1, 9)]
"""The colours of series, in order."""
WIDTH = 420
"""The width of a chart in pixels; on a phone, the page draws it smaller."""

_AXIS = {
    "labelColor": "var(--muted)",
    "titleColor": "var(--muted)",
    "titleFontWeight": "normal",
    "titleFontSize": 12,
    "labelFontSize": 12,
    "gridColor": "var(--line)",
    "domainColor": "var(--line-strong)",
    "tickColor": "var(--line-strong)",
    "tickSize": 4,
    "labelPadding": 4,
    "titlePadding": 8,
    "labelLimit": 0,
    "tickCount": 5,
    "labelSeparation": 6,
}
_CONFIG = {
    "aria": False,
    "font": "sans-serif",
    "view": {"stroke": None},
    "axis": _AXIS,
    "axisX": {"grid": False},
    "axisY": {"domain": False, "ticks": False},
    "legend": {
        "labelColor": "var(--ink)",
        "labelFontSize": 12,
        "labelLimit": 170,
        "orient": "top",
        "direction": "horizontal",
        "symbolType": "stroke",
        "symbolStrokeWidth": 3,
        "offset": 6,
        "title": None,
        "columns": 3,
    },
    "header": {
        "labelColor": "var(--ink)",
        "labelFontSize": 12,
        "labelFontWeight": 600,
        "labelAnchor": "start",
        "labelLimit": 320,
        "title": None,
    },
    "line": {"strokeWidth": 1.75, "strokeJoin": "round", "color": SERIES[0]},
    "point": {"size": 40, "filled": True, "opacity": 1, "color": SERIES[0]},
    "rule": {"color": "var(--line-strong)"},
    "bar": {"color": SERIES[0]},
    "text": {"color": "var(--ink)", "fontSize": 12},
}

_TAG = re.compile(r"<[^>]+>")
_SUPERFLUOUS = re.compile(
    r' (?:class|role|aria-[a-z]+|pointer-events|font-family|stroke-miterlimit)="[^"]*"'
    r'|(?<= )opacity="1" ?|(?<=\d)px(?=")'
)
_EMPTY = re.compile(r'<path(?: d="M0,0h0v0h0Z"| d="" display="none"| display="none"| d="")+ ?/>')
_LONG = re.compile(r"(-?\d+\.\d\d)\d+")
_numbers = itertools.count(1)
_NARROW = frozenset(" !'(),-./:;I[]fijlrt|")
_WIDE = frozenset("%@MWmw")


def draw(spec: Spec) -> str:
    """Returns the SVG of a Vega-Lite chart whose data is in the spec.

    Texts in the spec are escaped, and invisible characters in them are codes.
    """
    # The import takes part of a second, and starts a JavaScript engine.
    import vl_convert

    whole = {"background": None, "padding": 2, "config": _CONFIG} | spec
    svg = vl_convert.vegalite_to_svg(_visible(whole), allowed_base_urls=[])
    return _shrink(svg)


def _visible(value: Any) -> Any:
    """Returns a spec with the visible forms of its texts, and None instead of NaN.

    Subnormal numbers, at whose scales Vega fails, are 0.
    """
    if isinstance(value, float):
        return (value if abs(value) >= sys.float_info.min else 0.0) if is_number(value) else None
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {key: _visible(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_visible(item) for item in value]
    return value


def _shrink(svg: str) -> str:
    """Returns an SVG without superfluous attributes, with ids that no other chart of the page has.

    Only tags are changed: the texts between them are the data's.
    """
    prefix = f"c{next(_numbers)}-"
    svg = _EMPTY.sub("", _TAG.sub(lambda tag: _shrink_tag(tag[0], prefix), svg))
    return svg.replace("<g></g>", "")


def _shrink_tag(tag: str, prefix: str) -> str:
    tag = _LONG.sub(r"\1", _SUPERFLUOUS.sub("", tag))
    return tag.replace('id="', f'id="{prefix}').replace("url(#", f"url(#{prefix}")


def _numbered(rows: Sequence[Row], width: float = 160) -> list[dict[str, Any]]:
    """Returns rows whose names are distinct: an axis has one place for each distinct name.

    The axis shows the names without their first `_DIGITS` characters.

    Args:
      rows: the rows, with `name`.
      width: the width in pixels to which names are cut.
    """
    names = [_cut(visible(row["name"]), width) for row in rows]
    return [
        dict(row) | {"name": f"{i:0{_DIGITS}d}{name}"}
        for i, (row, name) in enumerate(zip(rows, names, strict=True))
    ]


def _cut(text: str, width: float) -> str:
    """Returns the beginning of a text that is about as wide as `width` pixels at most.

    Vega's `labelLimit` measures many beginnings of each text, which would take most of the time.
    """
    ends = list(itertools.accumulate(map(_width, text)))
    if not ends or ends[-1] <= width:
        return text
    return text[: sum(end <= width - _width("…") for end in ends)] + "…"


def _width(character: str) -> float:
    """Returns the approximate width of a character in pixels, in Arial of 12 pixels."""
    if character in _NARROW:
        return 3.5
    if unicodedata.east_asian_width(character) in "WF" or character in _WIDE or character == "…":
        return 12
    return 8.3 if character.isupper() else 6.6


_DIGITS = 4
_NAME = {"labelExpr": f"slice(datum.label, {_DIGITS})", "domain": False, "ticks": False}


def quantitative(field: str, title: str | None = None, **more: Any) -> Spec:
    """Returns the encoding of a number; the axis need not begin at 0."""
    scale = {"zero": False} | more.pop("scale", {})
    return {"field": field, "type": "quantitative", "title": title, "scale": scale} | more


def nominal(field: str, title: str | None = None, **more: Any) -> Spec:
    """Returns the encoding of a category, in the order of the data."""
    return {"field": field, "type": "nominal", "title": title, "sort": None} | more


def coloured(field: str, names: Sequence[str]) -> Spec:
    """Returns the encoding of series by colour; a single series has no legend."""
    scale = {"domain": list(names), "range": [SERIES[i % len(SERIES)] for i in range(len(names))]}
    legend: Spec = {} if len(names) > 1 else {"legend": None}
    return {"field": field, "type": "nominal", "scale": scale} | legend


def lines(
    rows: Sequence[Row],
    x: str,
    y: str | None,
    names: Sequence[str],
    *,
    height: int = 190,
    is_curve: bool = False,
    has_diagonal: bool = False,
) -> str:
    """Returns a chart with a line for each series.

    Args:
      rows: the points, with `x`, `y` and `series`, in the order in which a line joins them.
      x: the title of the x axis, whose values are whole numbers unless `is_curve`.
      y: the title of the y axis, or None.
      is_curve: whether both axes are shares, from 0 to 1.
      has_diagonal: whether a thin line joins (0, 0) and (1, 1).
    """
    scale: Spec = {"domain": [0, 1]} if is_curve else {}
    axis: Spec = {} if is_curve else {"tickMinStep": 1, "format": "d"}
    encoding = {
        "x": quantitative("x", x, scale={"nice": False} | scale, axis=axis),
        "y": quantitative("y", y, scale=scale),
        "color": coloured("series", names),
        "order": {"field": "order", "type": "quantitative"},
    }
    values = [{"order": i} | dict(row) for i, row in enumerate(rows)]
    few = not is_curve and len(rows) <= 30 * max(1, len(names))
    mark = {"type": "line", "point": {"size": 18} if few else False}
    layers: list[Spec] = [{"mark": mark, "encoding": encoding}]
    if has_diagonal:
        layers.insert(0, _diagonal(x, y))
    return draw(
        {"width": WIDTH, "height": height, "data": {"values": values}, "layer": layers}
        | {"autosize": {"type": "fit-x", "contains": "padding"}}
    )


def _diagonal(x: str, y: str | None) -> Spec:
    return {
        "data": {"values": [{"x": 0, "y": 0}, {"x": 1, "y": 1}]},
        "mark": {"type": "line", "color": "var(--line-strong)", "strokeDash": [3, 3]},
        "encoding": {"x": quantitative("x", x), "y": quantitative("y", y)},
    }


def intervals(
    rows: Sequence[Row], title: str, *, reference: float | None = None, by_panel: bool = False
) -> str:
    """Returns a chart of values with their intervals, one below the other.

    Args:
      rows: the values, with `name`, `value`, `low`, `high`, `kind` (the colour: a variable of the
        style sheet without `--`), and optionally `mark` (a threshold) and `other` (another value).
      title: the title of the x axis.
      reference: a value at which a vertical line is drawn.
      by_panel: whether each value has an x axis of its own.
    """
    values = [row | {"colour": f"var(--{row['kind']})"} for row in _numbered(rows)]
    y = nominal("name", axis=_NAME)
    colour = {"field": "colour", "type": "nominal", "scale": None}
    axis = {"grid": True, "tickCount": 4}
    # Dots at the ends of the axis stay away from the names.
    scale = {"padding": 8, "nice": False}
    bounds = {"x": quantitative("low", title, axis=axis, scale=scale), "x2": {"field": "high"}}
    bar = {"type": "rule", "strokeWidth": 6, "opacity": 0.35}
    point = {"type": "point", "size": 60}
    x = quantitative("value", title, axis=axis, scale=scale)
    layers: list[Spec] = [
        {"mark": bar, "encoding": {"y": y, "color": colour} | bounds},
        {"mark": point, "encoding": {"y": y, "color": colour, "x": x}},
    ]
    for field, shape, size in (("mark", "stroke", 300), ("other", "diamond", 70)):
        if any(row.get(field) is not None for row in rows):
            layers.append(_marks(field, shape, size, y, axis))
    if reference is not None:
        layers.insert(0, _reference(reference, title))
    unit: Spec = {"width": WIDTH - 170, "layer": layers}
    if not by_panel:
        return draw({"data": {"values": values}, "height": {"step": 22}} | unit)
    names = [row["name"] for row in values]
    panels = {"field": "name", "type": "nominal", "sort": names, "header": {"labels": False}}
    return draw(
        {
            "data": {"values": values},
            "facet": {"row": panels | {"title": None}},
            "spec": unit | {"height": 20},
            "spacing": 8,
            "resolve": {"scale": {"x": "independent", "y": "independent"}},
        }
    )


def _marks(field: str, shape: str, size: int, y: Spec, axis: Spec) -> Spec:
    mark = {"type": "point", "shape": shape, "size": size, "strokeWidth": 2, "filled": False}
    mark |= {"angle": 90} if shape == "stroke" else {}
    return {
        "transform": [{"filter": f"isValid(datum.{field})"}],
        "mark": mark | {"color": "var(--ink)"},
        "encoding": {"y": y, "x": quantitative(field, axis=axis)},
    }


def _reference(value: float, title: str) -> Spec:
    return {
        "data": {"values": [{"value": value}]},
        "mark": {"type": "rule", "strokeDash": [3, 3], "color": "var(--muted)"},
        "encoding": {"x": quantitative("value", title)},
    }


def bars(rows: Sequence[Row], panels: Sequence[str], width: int = WIDTH) -> str:
    """Returns horizontal bars, one below the other, in panels beside each other.

    Args:
      rows: the bars, with `panel`, `name`, `value`, `kind` (the colour) and `text` (the figure
        beside the bar). All panels have the same names in the same order.
      panels: the titles of the panels.
      width: the width of the whole chart in pixels.
    """
    per_panel = [_numbered([row for row in rows if row["panel"] == panel], 130) for panel in panels]
    values = [row | {"colour": f"var(--{row['kind']})"} for part in per_panel for row in part]
    x = quantitative("value", axis=None, scale={"zero": True, "padding": 0})
    bar = {"type": "bar", "height": {"band": 0.55}, "cornerRadiusEnd": 2}
    text = {"type": "text", "align": "left", "dx": 5, "color": "var(--muted)"}
    column = {"field": "panel", "type": "nominal", "sort": list(panels), "title": None}
    layers: list[Spec] = [
        {"mark": bar, "encoding": {"color": {"field": "colour", "scale": None}}},
        {"mark": text, "encoding": {"text": {"field": "text", "type": "nominal"}}},
    ]
    unit = {
        # Texts need 130 pixels on the left, and 70 beside the longest bar of each panel.
        "width": (width - 130 - 70 * len(panels)) / len(panels),
        "height": {"step": 22},
        "encoding": {"y": nominal("name", axis=_NAME), "x": x},
        "layer": layers,
    }
    if len(panels) == 1:
        return draw({"data": {"values": values}} | unit)
    return draw(
        {
            "data": {"values": values},
            "facet": {"column": column},
            "spec": unit,
            "spacing": 70,
            "resolve": {"scale": {"x": "independent"}},
        }
    )


def over_runs(rows: Sequence[Row]) -> str:
    """Returns a metric by run, with intervals and a line that joins the values.

    Args:
      rows: the runs, the oldest first, with `name`, `value`, `low`, `high` and `kind`.
    """
    values = [row | {"colour": f"var(--{row['kind']})"} for row in _numbered(rows)]
    axis = {"labelAngle": 0, "labelOverlap": "greedy", "labelSeparation": 16, "offset": 6}
    x = nominal("name", axis=_NAME | axis)
    colour = {"field": "colour", "type": "nominal", "scale": None}
    bounds = {"y": quantitative("low"), "y2": {"field": "high"}}
    y = quantitative("value")
    # Runs that are not good differ in shape, too, for people who do not see the colour.
    shape = {"condition": {"test": "datum.kind === 'good'", "value": "circle"}, "value": "cross"}
    dots = {"mark": {"type": "point", "size": 40}}
    dots |= {"encoding": {"y": y, "color": colour, "shape": shape}}
    bar = {"type": "rule", "strokeWidth": 3, "opacity": 0.35}
    return draw(
        {
            "data": {"values": values},
            "width": WIDTH - 50,
            "height": 120,
            "encoding": {"x": x},
            "layer": [
                {"mark": {"type": "line", "color": "var(--line-strong)"}, "encoding": {"y": y}},
                {"mark": bar, "encoding": bounds | {"color": colour}},
                dots,
            ],
        }
    )


def calibration(rows: Sequence[Row]) -> str:
    """Returns observed frequencies by predicted probability.

    Args:
      rows: the bins, with the predicted probability `x`, the observed frequency `y`, and the bounds
        `low` and `high`.
    """
    scale = {"domain": [0, 1]}
    titles = ("predicted probability", "observed frequency")
    x = quantitative("x", titles[0], scale=scale)
    y = quantitative("y", titles[1], scale=scale)
    bounds = {"y": quantitative("low", titles[1], scale=scale), "y2": {"field": "high"}}
    return draw(
        {
            "data": {"values": list(rows)},
            "width": WIDTH - 50,
            "height": 190,
            "layer": [
                _diagonal(*titles),
                {
                    "mark": {"type": "rule", "strokeWidth": 3, "opacity": 0.35, "color": SERIES[0]},
                    "encoding": {"x": x} | bounds,
                },
                {"mark": {"type": "point", "size": 30}, "encoding": {"x": x, "y": y}},
            ],
        }
    )


def histogram(rows: Sequence[Row], x: str, y: str) -> str:
    """Returns a histogram of counts.

    Args:
      rows: the bins, with `left`, `right` and `count`.
    """
    return draw(
        {
            "data": {"values": list(rows)},
            "width": WIDTH - 50,
            "height": 190,
            "mark": {"type": "bar", "binSpacing": 0.5},
            "encoding": {
                "x": {"field": "left", "bin": {"binned": True}, "type": "quantitative", "title": x},
                "x2": {"field": "right"},
                "y": quantitative("count", y, scale={"zero": True}),
            },
        }
    )


def scatter(rows: Sequence[Row], x: str, y: str) -> str:
    """Returns points with a diagonal, on which `x` and `y` are equal.

    Args:
      rows: the points, with `x` and `y`.
    """
    values = [row[axis] for row in rows for axis in ("x", "y")]
    ends = [{"x": end, "y": end} for end in (min(values), max(values))]
    encoding = {"x": quantitative("x", x), "y": quantitative("y", y)}
    return draw(
        {
            "width": WIDTH - 60,
            "height": 190,
            "encoding": encoding,
            "layer": [
                {
                    "data": {"values": ends},
                    "mark": {"type": "line", "color": "var(--line-strong)", "strokeDash": [3, 3]},
                },
                {
                    "data": {"values": list(rows)},
                    "mark": {"type": "square", "size": 9, "opacity": 0.55},
                },
            ],
        }
    )


def parallel(rows: Sequence[Row], axes: Sequence[str]) -> str:
    """Returns parallel coordinates: a line for each trial over the axes of the parameters.

    Args:
      rows: the points, with `axis`, `position` (0 to 1), `label` (the value, or an empty string),
        `trial`, `rank` (the opacity: 0 for the worst trial, 1 for the best) and `kind`.
      axes: the names of the axes in order.
    """
    values = [dict(row) | {"colour": f"var(--{row['kind']})"} for row in rows]
    axis = {"labelAngle": 0, "orient": "top", "domain": False, "ticks": False, "offset": 8}
    x = nominal("axis", axis=axis)
    x["scale"] = {"domain": list(axes), "type": "point", "padding": 0.4}
    y = {"field": "position", "type": "quantitative", "axis": None, "scale": {"domain": [0, 1]}}
    strength = {
        "field": "rank",
        "type": "quantitative",
        "scale": {"range": [0.15, 1]},
        "legend": None,
    }
    lines_layer = {
        "mark": {"type": "line", "strokeWidth": 1.5},
        "encoding": {
            "x": x,
            "y": y,
            "detail": {"field": "trial"},
            "opacity": strength,
            "color": {"field": "colour", "type": "nominal", "scale": None},
        },
    }
    rules = {
        "mark": {"type": "rule", "color": "var(--line)"},
        "encoding": {"x": x},
        "data": {"values": [{"axis": axis} for axis in axes]},
    }
    mark = {"type": "text", "align": "left", "dx": 5, "color": "var(--ink)"}
    halo = mark | {"stroke": "var(--paper)", "strokeWidth": 4, "strokeJoin": "round"}
    texts = {
        "transform": [{"filter": "datum.label != ''"}],
        "encoding": {"x": x, "y": y, "text": {"field": "label", "type": "nominal"}},
        "layer": [{"mark": halo}, {"mark": mark}],
    }
    return draw(
        {
            "data": {"values": values},
            "width": {"step": 130},
            "height": 180,
            "layer": [rules, lines_layer, texts],
        }
    )


def graph(nodes: Sequence[Row], edges: Sequence[Row]) -> str:
    """Returns a directed graph from left to right.

    Args:
      nodes: the nodes, with `name`, `x` (the level), `y` (the row), `detail` and `kind`.
      edges: the edges, with `x`, `y`, `x2` and `y2`.
    """
    levels = max((node["x"] for node in nodes), default=0) + 1
    rows = max((node["y"] for node in nodes), default=0) + 1
    values = [dict(node) | {"colour": f"var(--{node['kind']})"} for node in nodes]
    x = {
        "field": "x",
        "type": "quantitative",
        "axis": None,
        "scale": {"domain": [-0.5, levels - 0.5]},
    }
    y = {
        "field": "y",
        "type": "quantitative",
        "axis": None,
        "scale": {"domain": [-0.5, rows - 0.5], "reverse": True},
    }
    box = {"type": "rect", "width": 102, "height": 36, "cornerRadius": 4, "strokeWidth": 1.5}
    return draw(
        {
            "width": levels * 112,
            "height": rows * 52,
            "encoding": {"x": x, "y": y},
            "layer": [
                {
                    "data": {"values": list(edges)},
                    "mark": {"type": "rule", "color": "var(--line-strong)"},
                    "encoding": {"x2": {"field": "x2"}, "y2": {"field": "y2"}},
                },
                {
                    "data": {"values": values},
                    "mark": box | {"fill": "var(--paper)"},
                    "encoding": {"stroke": {"field": "colour", "type": "nominal", "scale": None}},
                },
                {
                    "data": {"values": values},
                    "mark": {"type": "text", "dy": -6, "fontWeight": 600, "fontSize": 11},
                    "encoding": {"text": {"field": "name", "type": "nominal"}},
                },
                {
                    "data": {"values": values},
                    "mark": {"type": "text", "dy": 9, "color": "var(--muted)", "fontSize": 11},
                    "encoding": {"text": {"field": "detail", "type": "nominal"}},
                },
            ],
        }
    )
