"""What a person sees of a run's outcome."""

from __future__ import annotations

import io
import logging

from components.optimizer.report import OptimizerReport, VariantReport
from pipeline.records.summary import RunSummary, Status
from pipeline.runs.console import RunConsole


def test_variants_are_a_table_with_reasons_of_refusals() -> None:
    report = OptimizerReport(
        metric="auc",
        variants=[
            VariantReport(
                name="int8",
                accepted=True,
                bytes=12_000,
                gzipped_bytes=9_000,
                size_ratio=0.25,
                drop=0.001,
                metrics={"auc": 0.91},
                measured={"p50_ms_batch_1": 0.0123, "p50_ms_batch_32": 0.5},
                remarks=["of few rows"],
            ),
            VariantReport(
                name="tensorrt_float16",
                accepted=True,
                bytes=48_000,
                gzipped_bytes=36_000,
                size_ratio=1.0,
                drop=0.0,
                metrics={"auc": 0.911},
                unmeasured="unmeasured on a GPU",
            ),
            VariantReport(name="onnx", accepted=False, reasons=["no operation for Erf [x]"]),
        ],
    )
    summary = RunSummary(
        run_id="1",
        pipeline="p",
        started="now",
        strategy="default",
        status=Status.NOT_BLESSED,
        blessed=True,
        reason="variant onnx is required",
        variants=report.model_dump(mode="json"),
    )
    stream = io.StringIO()
    RunConsole(stream).conclude(summary, [])
    lines = [line.strip() for line in stream.getvalue().splitlines() if line]
    assert lines[0].split() == [
        *("variant", "auc", "drop", "size", "share", "gzipped", "1", "row", "ok"),
    ]
    assert lines[1].split() == [
        *("int8", "0.9100", "+0.0010", "12.0", "kB", "0.250", "9.0", "kB"),
        *("0.0123", "ms", "yes"),
    ]
    assert lines[2].split()[-2:] == ["-", "unmeasured"]
    assert lines[3].split() == ["onnx", *["-"] * 6, "no"]
    assert max(map(len, lines[:4])) < 80
    assert lines[4:] == [
        "note: int8: of few rows",
        "note: tensorrt_float16: unmeasured on a GPU, but accepted (optimize.accept.unmeasured)",
        "refused onnx: no operation for Erf [x]",
        "not pushed: variant onnx is required",
    ]


def test_note_is_shown_once() -> None:
    stream = io.StringIO()
    console = RunConsole(stream)
    record = logging.makeLogRecord({"msg": "column x dates the rows", "notice": True})
    console.emit(record)
    notes = ["column x dates the rows", "column y is constant"]
    summary = RunSummary(run_id="1", pipeline="p", started="now", strategy="default", notes=notes)
    console.conclude(summary, [])
    shown = stream.getvalue()
    assert shown.count("column x dates the rows") == 1
    assert "note: column y is constant" in shown
