"""The section about serving: the variants of the model, and the certificate of its interfaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipeline.records.summary import CertificateSummary
from pipeline.report import charts
from pipeline.report.blocks import Block, Cell, Figure, Note, Section, Table
from pipeline.report.source import ReportSource
from pipeline.report.text import NONE, is_number, number, percent, shorten, size

_LATENCY = "p50_ms_batch_1"
MAX_BARS = 12


def make_variants(source: ReportSource) -> Section | None:
    """Returns the section of variants, or None without variants."""
    report = source.summary.variants
    variants = [one for one in report.get("variants", []) if isinstance(one, Mapping)]
    if not variants:
        skipped = report.get("skipped")
        note = Note(f"No variants were made: {shorten(skipped, 500)}.", "muted")
        return Section("variants", "Variants", [note]) if skipped else None
    metric = str(report.get("metric", ""))
    blocks: list[Block] = []
    whole = source.summary.metrics.get(metric)
    model = {
        "name": "SavedModel",
        "bytes": report.get("weight_bytes"),
        "metrics": {metric: whole.value if whole else None},
        "measured": report.get("measured"),
    }
    blocks.append(_figure(model, variants, metric))
    blocks.append(_table(model, variants, metric))
    for unmet in report.get("unmet", []):
        blocks.append(Note(shorten(unmet, 500), "bad"))
    return Section("variants", "Variants", blocks)


def _figure(model: Mapping[str, Any], variants: Sequence[Mapping[str, Any]], metric: str) -> Figure:
    """Returns the sizes, latencies and metrics beside each other."""
    panels: dict[str, Callable[[Mapping[str, Any]], tuple[Any, str]]] = {
        "size": lambda one: (one.get("bytes"), size(one.get("bytes"))),
        "time for 1 row": lambda one: (
            (one.get("measured") or {}).get(_LATENCY),
            _milliseconds(one.get("measured") or {}, _LATENCY),
        ),
        metric: lambda one: (
            (one.get("metrics") or {}).get(metric),
            number((one.get("metrics") or {}).get(metric)),
        ),
    }
    rows = []
    for panel, read in panels.items():
        for one in (model, *variants[:MAX_BARS]):
            value, text = read(one)
            kind = "line-strong" if one is model else "series-1" if one["accepted"] else "bad"
            row = {"panel": panel, "name": shorten(one["name"], 20), "text": text, "kind": kind}
            rows.append(row | {"value": value if is_number(value) else 0})
    message = "; ".join(
        f"{shorten(one['name'], 20)}: {', '.join(read(one)[1] for read in panels.values())}"
        for one in variants[:MAX_BARS]
    )
    svg = charts.bars(rows, list(panels), 760)
    return Figure("Size, latency and metric", message, svg, is_wide=True)


def _table(model: Mapping[str, Any], variants: Sequence[Mapping[str, Any]], metric: str) -> Table:
    head = ["variant", "verdict", metric, "drop", "size", "share of the size", "1 row", "p99"]
    rows: list[list[str | Cell]] = [_model_row(model, metric)]
    for one in variants:
        measured = one.get("measured") or {}
        drop = percent(one.get("drop")) if one.get("drop_is_share") else _drop(one.get("drop"))
        reasons = "; ".join(map(str, one.get("reasons", [])))
        verdict = Cell("accepted", "good") if one.get("accepted") else Cell("rejected", "bad")
        if one.get("unmeasured"):
            verdict = Cell(f"unmeasured: {shorten(one['unmeasured'])}", "warn")
        elif reasons:
            verdict = Cell(f"rejected: {shorten(reasons)}", "bad")
        rows.append(
            [
                shorten(one["name"], 40),
                verdict,
                number((one.get("metrics") or {}).get(metric)),
                drop,
                size(one.get("bytes")),
                percent(one.get("size_ratio")),
                _milliseconds(measured, _LATENCY),
                _milliseconds(measured, "p99_ms_batch_1"),
            ]
        )
    return Table.capped("Variants of the model", head, rows, 2)


def _drop(value: object) -> str:
    return f"{value:+.2g}" if is_number(value) and value else number(value)


def _model_row(model: Mapping[str, Any], metric: str) -> list[str | Cell]:
    measured = model["measured"] or {}
    latencies = [_milliseconds(measured, key) for key in (_LATENCY, "p99_ms_batch_1")]
    value = number(model["metrics"][metric])
    return [model["name"], "", value, "", size(model["bytes"]), "100%", *latencies]


def _milliseconds(measured: Mapping[str, Any], key: str) -> str:
    value = measured.get(key)
    return f"{value:.3g} ms" if is_number(value) else NONE


def make_certificate(source: ReportSource) -> Section | None:
    """Returns the section of the certificate, or None if the interfaces were not compared."""
    certificate = source.summary.certificate
    if certificate is None:
        return None
    if certificate.failure:
        outcome = Note(shorten(certificate.failure, 2000), "bad", "The interfaces differ")
    else:
        gist = certificate.gist
        outcome = Note(f"{gist[:1].upper()}{gist[1:]}.", "good")
    return Section("certificate", "Certificate", [outcome, _interfaces(certificate)])


def _interfaces(certificate: CertificateSummary) -> Table:
    rows = [
        [name, shorten(way.row, 80), way.output, number(way.largest_difference)]
        for name, way in certificate.ways.items()
    ]
    caption = (
        f"Largest differences to {certificate.expected_by}, with tolerance "
        f"{number(certificate.tolerance)}"
    )
    head = ["interface", "row", "output", "difference"]
    return Table.capped(caption, head, rows, 3, is_folded=not certificate.failure)
