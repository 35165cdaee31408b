"""The section about serving: the variants of the model, and the certificate of its interfaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.records.summary import CertificateSummary
from pipeline.report import charts
from pipeline.report.blocks import Block, Cell, Figure, Note, Section, Table
from pipeline.report.source import ReportSource
from pipeline.report.text import NONE, is_number, number, percent, shorten, signed, size

_LATENCY = "p50_ms_batch_1"


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
    if figure := _figure(report, variants, metric):
        blocks.append(figure)
    blocks.append(_table(report, variants, metric))
    for unmet in report.get("unmet", []):
        blocks.append(Note(shorten(unmet, 500), "bad"))
    return Section("variants", "Variants", blocks)


def _figure(
    report: Mapping[str, Any], variants: Sequence[Mapping[str, Any]], metric: str
) -> Figure | None:
    measured = [(str(one["name"]), one.get("measured") or {}, one) for one in variants]
    rows = [
        {
            "x": one["bytes"] / 1000,
            "y": figures[_LATENCY],
            "name": f"{shorten(name, 16)} {number((one.get('metrics') or {}).get(metric))}",
            "kind": "series-1" if one.get("accepted") else "bad",
        }
        for name, figures, one in measured
        if is_number(one.get("bytes")) and is_number(figures.get(_LATENCY))
    ]
    if len(rows) < 2:
        return None
    message = "; ".join(
        f"{row['name']}: {number(row['x'])} kB, {number(row['y'])} ms" for row in rows
    )
    note = f"The figure beside a name is {metric}. Variants in red are rejected."
    svg = charts.labelled_points(rows, "size in kB", "ms for one row")
    return Figure("Size, latency and metric", message, svg, note=note)


def _table(report: Mapping[str, Any], variants: Sequence[Mapping[str, Any]], metric: str) -> Table:
    head = ["variant", f"{metric}", "drop", "size", "share of the size", "1 row", "p99", "verdict"]
    rows: list[list[str | Cell]] = [_model_row(report, metric)]
    for one in variants:
        measured = one.get("measured") or {}
        drop = percent(one.get("drop")) if one.get("drop_is_share") else signed(one.get("drop"))
        reasons = "; ".join(map(str, one.get("reasons", [])))
        verdict = Cell("accepted", "good") if one.get("accepted") else Cell("rejected", "bad")
        if one.get("unmeasured"):
            verdict = Cell(f"unmeasured: {shorten(one['unmeasured'])}", "warn")
        elif reasons:
            verdict = Cell(f"rejected: {shorten(reasons)}", "bad")
        rows.append(
            [
                shorten(one["name"], 40),
                number((one.get("metrics") or {}).get(metric)),
                drop,
                size(one.get("bytes")),
                percent(one.get("size_ratio")),
                _milliseconds(measured, _LATENCY),
                _milliseconds(measured, "p99_ms_batch_1"),
                verdict,
            ]
        )
    return Table.capped("Variants of the model", head, rows)


def _model_row(report: Mapping[str, Any], metric: str) -> list[str | Cell]:
    measured = report.get("measured") or {}
    latencies = [_milliseconds(measured, key) for key in (_LATENCY, "p99_ms_batch_1")]
    value = number((report.get("metrics") or {}).get(metric))
    return ["SavedModel", value, "", size(report.get("weight_bytes")), "100%", *latencies, ""]


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
    return Table.capped(caption, ["interface", "row", "output", "difference"], rows, 3)
