"""Charts of pages: Vega-Lite draws them as SVG. Colours are variables of the page's style sheet."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.report.text import visible

Spec = dict[str, Any]
Row = Mapping[str, Any]

SERIES = [f"var(--series-{i})" for i in range(1, 9)]
"""The colours of series, in order."""
WIDTH = 330
"""The width of a chart in pixels, which fits on a phone."""

_AXIS = {
    "labelColor": "var(--muted)",
    "titleColor": "var(--muted)",
    "titleFontWeight": "normal",
    "titleFontSize": 11,
    "labelFontSize": 11,
    "gridColor": "var(--line)",
    "domainColor": "var(--line-strong)",
    "tickColor": "var(--line-strong)",
    "tickSize": 4,
    "labelPadding": 4,
    "titlePadding": 8,
    "labelLimit": 150,
    "tickCount": 5,
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
        "labelFontSize": 11,
        "labelLimit": 150,
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
    "text": {"color": "var(--ink)", "fontSize": 11},
}

_TAG = re.compile(r"<[^>]+>")
_SUPERFLUOUS = re.compile(
    r' (?:class|role|aria-[a-z]+|pointer-events|font-family|stroke-miterlimit)="[^"]*"'
    r'|(?<= )opacity="1" ?|(?<=\d)px(?=")'
)
_EMPTY = re.compile(r'<path(?: d="M0,0h0v0h0Z"| d="" display="none"| display="none"| d="")+ ?/>')
_LONG = re.compile(r"(-?\d+\.\d\d)\d+")
_numbers = itertools.count(1)


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
    """Returns a spec with the visible forms of its texts."""
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
    y: str,
    names: Sequence[str],
    *,
    height: int = 190,
    diagonal: bool = False,
    dots: bool = True,
    **scales: Spec,
) -> str:
    """Returns a chart with a line for each series.

    Args:
      rows: the points, with `x`, `y` and `series`, in the order in which a line joins them.
      x: the title of the x axis.
      y: the title of the y axis.
      names: the names of the series.
      height: the height in pixels.
      diagonal: whether a thin line joins (0, 0) and (1, 1).
      dots: whether few points are drawn as dots.
      scales: the scales of the encodings `x` and `y`.
    """
    encoding = {
        "x": quantitative("x", x, scale=scales.get("x", {})),
        "y": quantitative("y", y, scale=scales.get("y", {})),
        "color": coloured("series", names),
        "order": {"field": "order", "type": "quantitative"},
    }
    values = [{"order": i} | dict(row) for i, row in enumerate(rows)]
    few = dots and len(rows) <= 30 * max(1, len(names))
    mark = {"type": "line", "point": {"size": 18} if few else False}
    layers: list[Spec] = [{"mark": mark, "encoding": encoding}]
    if diagonal:
        layers.insert(0, _diagonal())
    return draw(
        {"width": WIDTH, "height": height, "data": {"values": values}, "layer": layers}
        | {"autosize": {"type": "fit-x", "contains": "padding"}}
    )


def _diagonal() -> Spec:
    return {
        "data": {"values": [{"x": 0, "y": 0}, {"x": 1, "y": 1}]},
        "mark": {"type": "line", "color": "var(--line-strong)", "strokeDash": [3, 3]},
        "encoding": {"x": quantitative("x"), "y": quantitative("y")},
    }


def intervals(
    rows: Sequence[Row], title: str, *, reference: float | None = None, by_panel: bool = False
) -> str:
    """Returns a chart of values with their intervals, one below the other.

    Args:
      rows: the values, with `name`, `value`, `low` and `high` (or None), `kind` (the colour: a
        variable of the style sheet without `--`), and optionally `mark` (a threshold), `other`
        (another value) and `panel`.
      title: the title of the x axis.
      reference: a value at which a vertical line is drawn.
      by_panel: whether each `panel` has an x axis of its own.
    """
    y = nominal("name", axis={"labelLimit": 130, "domain": False, "ticks": False})
    colour = {"field": "colour", "type": "nominal", "scale": None}
    x_axis = {"grid": True, "title": title, "tickCount": 4}
    x = quantitative("value", title, axis=x_axis)
    bounds = {"x": quantitative("low", title, axis=x_axis), "x2": {"field": "high"}}
    layers: list[Spec] = [
        {
            "mark": {"type": "rule", "strokeWidth": 5, "opacity": 0.35},
            "encoding": {"y": y, **bounds, "color": colour},
        },
        {"mark": {"type": "point", "size": 55}, "encoding": {"y": y, "x": x, "color": colour}},
    ]
    for name, shape, size in (("mark", "stroke", 260), ("other", "diamond", 60)):
        if any(row.get(name) is not None for row in rows):
            layers.append(_marks(name, shape, size, y, x_axis))
    if reference is not None:
        layers.insert(0, _reference(reference))
    values = [dict(row) | {"colour": f"var(--{row.get('kind', 'series-1')})"} for row in rows]
    unit: Spec = {"width": 190 if not by_panel else 210, "layer": layers}
    if not by_panel:
        return draw({"data": {"values": values}, "height": {"step": 20}} | unit)
    unit["height"] = 18
    return draw(
        {
            "data": {"values": values},
            "facet": {"row": nominal("panel", header={"labels": False}, title=None)},
            "spec": unit,
            "spacing": 6,
            "resolve": {"scale": {"x": "independent", "y": "independent"}},
        }
    )


def _marks(field: str, shape: str, size: int, y: Spec, axis: Spec) -> Spec:
    mark = {"type": "point", "shape": shape, "size": size, "strokeWidth": 2, "filled": False}
    if shape == "stroke":
        mark |= {"angle": 90}
    return {
        "transform": [{"filter": f"isValid(datum.{field})"}],
        "mark": mark | {"color": "var(--ink)"},
        "encoding": {"y": y, "x": quantitative(field, axis["title"], axis=axis)},
    }


def _reference(value: float) -> Spec:
    return {
        "data": {"values": [{"value": value}]},
        "mark": {"type": "rule", "strokeDash": [3, 3], "color": "var(--muted)"},
        "encoding": {"x": quantitative("value")},
    }


def bars(rows: Sequence[Row], title: str, *, height: int | None = None) -> str:
    """Returns horizontal bars, one below the other.

    Args:
      rows: the bars, with `name`, `value`, and `kind` (the colour) and `text` (the figure beside).
      title: the title of the x axis.
      height: the height in pixels, or None for 20 pixels a bar.
    """
    values = [dict(row) | {"colour": f"var(--{row.get('kind', 'series-1')})"} for row in rows]
    y = nominal("name", axis={"labelLimit": 130, "domain": False, "ticks": False})
    x = quantitative("value", title, axis={"grid": True, "tickCount": 4}, scale={"zero": True})
    bar = {"type": "bar", "height": {"band": 0.6}, "cornerRadiusEnd": 2}
    text = {"type": "text", "align": "left", "dx": 5}
    return draw(
        {
            "data": {"values": values},
            "width": 170,
            "height": {"step": 20} if height is None else height,
            "encoding": {"y": y, "x": x},
            "layer": [
                {"mark": bar, "encoding": {"color": {"field": "colour", "scale": None}}},
                {"mark": text, "encoding": {"text": {"field": "text"}}},
            ],
        }
    )


def over_runs(rows: Sequence[Row], title: str) -> str:
    """Returns a metric by run, with intervals and a line that joins the values.

    Args:
      rows: the runs, the oldest first, with `run`, `value`, `low`, `high` and `colour`.
      title: the name of the metric.
    """
    axis = {"labelAngle": 0, "labelOverlap": True, "labelFlush": True, "ticks": False}
    axis |= {"labelExpr": "slice(datum.label, 6)"}
    x = nominal("at", axis=axis)
    y = quantitative("value", title)
    colour = {"field": "colour", "type": "nominal", "scale": None}
    # The axis needs a value of its own for each run: two runs may have the same name.
    values = [dict(row) | {"at": f"{i:04d}: {row['run']}"} for i, row in enumerate(rows)]
    bounds = {"y": quantitative("low", title), "y2": {"field": "high"}}
    return draw(
        {
            "data": {"values": values},
            "width": WIDTH - 60,
            "height": 120,
            "encoding": {"x": x},
            "layer": [
                {"mark": {"type": "line", "color": "var(--line-strong)"}, "encoding": {"y": y}},
                {
                    "mark": {"type": "rule", "strokeWidth": 3, "opacity": 0.35},
                    "encoding": bounds | {"color": colour},
                },
                {"mark": {"type": "point", "size": 28}, "encoding": {"y": y, "color": colour}},
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
    x = quantitative("x", "predicted probability", scale=scale)
    bounds = {"y": quantitative("low", "observed frequency", scale=scale), "y2": {"field": "high"}}
    return draw(
        {
            "data": {"values": list(rows)},
            "width": WIDTH - 50,
            "height": 190,
            "layer": [
                _diagonal(),
                {
                    "mark": {"type": "rule", "strokeWidth": 3, "opacity": 0.35, "color": SERIES[0]},
                    "encoding": {"x": x} | bounds,
                },
                {
                    "mark": {"type": "point", "size": 30},
                    "encoding": {"x": x, "y": quantitative("y", scale=scale)},
                },
            ],
        }
    )


def histogram(rows: Sequence[Row], x: str, y: str) -> str:
    """Returns a histogram.

    Args:
      rows: the bins, with `left`, `right` and `count`.
      x: the title of the x axis.
      y: the title of the y axis.
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
      x: the title of the x axis.
      y: the title of the y axis.
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


def labelled_points(rows: Sequence[Row], x: str, y: str) -> str:
    """Returns points with names beside them; both axes begin at 0.

    Args:
      rows: the points, with `x`, `y`, `name` and `kind` (the colour).
      x: the title of the x axis.
      y: the title of the y axis.
    """
    values = [dict(row) | {"colour": f"var(--{row['kind']})"} for row in rows]
    colour = {"field": "colour", "type": "nominal", "scale": None}
    label = {"type": "text", "align": "left", "dx": 8}
    zero = {"zero": True}
    return draw(
        {
            "data": {"values": values},
            "width": WIDTH - 110,
            "height": 170,
            "encoding": {
                "x": quantitative("x", x, scale=zero),
                "y": quantitative("y", y, scale=zero),
            },
            "layer": [
                {"mark": {"type": "point", "size": 60}, "encoding": {"color": colour}},
                {"mark": label, "encoding": {"text": {"field": "name", "type": "nominal"}}},
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
    x = nominal("axis", axis={"labelAngle": 0, "orient": "top", "domain": False, "ticks": False})
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
    text = {
        "transform": [{"filter": "datum.label != ''"}],
        "mark": {"type": "text", "align": "left", "dx": 5, "color": "var(--muted)"},
        "encoding": {"x": x, "y": y, "text": {"field": "label", "type": "nominal"}},
    }
    return draw(
        {
            "data": {"values": [dict(row) | {"colour": f"var(--{row['kind']})"} for row in rows]},
            "width": {"step": 130},
            "height": 180,
            "layer": [rules, lines_layer, text],
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
    y = {"field": "y", "type": "quantitative", "axis": None}
    y["scale"] = {"domain": [-0.5, rows - 0.5], "reverse": True}
    box = {"type": "rect", "width": 116, "height": 36, "cornerRadius": 4, "strokeWidth": 1.5}
    return draw(
        {
            "width": levels * 140,
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
                    "mark": {"type": "text", "dy": -6, "fontWeight": 600},
                    "encoding": {"text": {"field": "name", "type": "nominal"}},
                },
                {
                    "data": {"values": values},
                    "mark": {"type": "text", "dy": 9, "color": "var(--muted)"},
                    "encoding": {"text": {"field": "detail", "type": "nominal"}},
                },
            ],
        }
    )
