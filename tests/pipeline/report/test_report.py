"""The report of a run: its content, hostile texts, and what a browser makes of it."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from components.evaluator.explanation.record import WorstExamples
from pipeline.layout import RunLayout
from pipeline.records.run_folders import StoredRun
from pipeline.records.summary import MetricSummary, RunSummary, Status
from pipeline.report.page import make_report, write_report
from pipeline.report.slice_differences import slice_differences
from pipeline.report.text import interval, visible
from tests.support.browser import Browser
from tests.support.example_runs import HOSTILE, as_hostile, full_run, worst_examples

SECTIONS = ["verdict", "data", "training", "evaluation", "slices", "usage"]
SECTIONS += ["tuning", "variants", "certificate", "steps", "lineage"]
MAX_BYTES = 2_000_000


class _Page(HTMLParser):
    """The tags of a page, and its text by section."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self._section = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "section":
            self._section = dict(attrs)["id"] or ""

    def handle_data(self, data: str) -> None:
        self.texts[self._section] = self.texts.get(self._section, "") + data

    @property
    def sections(self) -> list[str | None]:
        return [attributes["id"] for tag, attributes in self.tags if tag == "section"]


@pytest.fixture(scope="module")
def full() -> str:
    return make_report(full_run(), worst_examples())


@pytest.fixture(scope="module")
def hostile() -> str:
    summary = as_hostile(full_run().model_dump(mode="json"))
    worst = as_hostile(worst_examples().model_dump(mode="json"))
    return make_report(RunSummary.model_validate(summary), WorstExamples.model_validate(worst))


@pytest.fixture(scope="module")
def failed() -> str:
    error = {"component": "ExampleGen", "message": "no label 'prize': did you mean 'price'?"}
    return make_report(
        RunSummary.model_validate(
            {"run_id": "1", "pipeline": "p", "status": "unusable", "started": "", "strategy": ""}
            | {"error": error | {"log": "/out/run.log"}}
        )
    )


@pytest.fixture(scope="module")
def month() -> str:
    """The report of the last of 31 nightly runs, which was not blessed."""
    days = [f"2026-11-{day:02d}" for day in range(1, 31)]
    history = [full_run(run_id=day, window={"spans": [day], "newest": day}) for day in days]
    last = {"status": "not_blessed", "blessed": False, "pushed": None, "details": None}
    return make_report(full_run(**last, tuning={}, variants={}, training={}), history=history)


@pytest.mark.proof
def test_a_full_run_has_every_section_with_its_message(full: str) -> None:
    page = _Page(full)
    assert page.sections == SECTIONS
    texts = page.texts
    assert "at least 0.93: met" in texts["verdict"]
    assert "0.9415 to 0.9567" in texts["verdict"]
    assert "features: {trip_miles: {max: 12}}" in texts["data"]
    assert "12, best 11" in texts["training"]
    assert "worker 1 was killed" in texts["training"]
    assert "yes predicted as no (130)" in texts["evaluation"]
    assert "auc: 2 of 2 tested slices differ beyond chance" in texts["slices"]
    assert "features: {payment_type: {type: ignore}}" in texts["usage"]
    assert "6 (best)" in texts["tuning"]
    assert "rejected: auc drops by 0.02" in texts["variants"]
    assert "/out/ExampleGen/1" in texts["lineage"]
    assert len(full) < MAX_BYTES


def test_ignored_and_private_columns_keep_their_values(full: str) -> None:
    assert "Jane Private" not in full
    assert "ignored 7.5" not in full
    assert "driver" in _Page(full).texts["data"]


@pytest.mark.proof
def test_hostile_texts_are_visible_and_no_markup(hostile: str) -> None:
    page = _Page(hostile)
    assert page.sections == SECTIONS
    assert {tag for tag, _ in page.tags}.isdisjoint({"script", "iframe", "object", "link", "base"})
    assert not [name for _, attributes in page.tags for name in attributes if name[:2] == "on"]
    sources = [attributes.get("src") for tag, attributes in page.tags if tag == "img"]
    assert all(str(source).startswith("data:image/png;base64,") for source in sources)
    assert not re.search(r"[\u202e\x1b\x07]", hostile)
    assert visible(HOSTILE) in page.texts["verdict"]


def test_old_summaries_have_no_details() -> None:
    whole = full_run().model_dump(mode="json")
    del whole["details"]
    page = _Page(make_report(RunSummary.model_validate(whole)))
    assert page.sections == [
        name for name in SECTIONS if name not in {"evaluation", "usage", "lineage"}
    ]
    assert "cannot be compared with chance" in page.texts["slices"]


@pytest.mark.parametrize("status", list(Status))
def test_each_status_has_a_verdict(status: Status) -> None:
    run = RunSummary(run_id="1", pipeline="p", status=status, started="", strategy="default")
    page = _Page(make_report(run))
    assert page.sections == ["verdict"]
    assert len(page.texts["verdict"].strip()) > 20


def test_a_failed_run_begins_with_the_error_and_the_next_step(failed: str) -> None:
    text = _Page(failed).texts["verdict"]
    words = (
        "ExampleGen: unusable",
        "did you mean",
        "Correct the config or the data",
        "/out/run.log",
    )
    places = [text.index(part) for part in words]
    assert places == sorted(places)


def _hollow(value: Any, has_items: bool) -> Any:
    """Returns a value of JSON with NaN instead of floats, and with empty lists of other values."""
    if isinstance(value, dict):
        return {key: _hollow(item, has_items) for key, item in value.items()}
    if isinstance(value, list):
        return [_hollow(one, has_items) for one in value if has_items or isinstance(one, dict)]
    return math.nan if isinstance(value, float) else value


@pytest.mark.parametrize("has_items", [True, False])
def test_numbers_may_be_missing_and_lists_empty(has_items: bool) -> None:
    whole = full_run().model_dump(mode="json")
    hollow = _hollow(whole, has_items)
    hollow["details"]["slice_intervals"] = {}
    hollow["details"]["lineage"]["edges"] = []
    for metric in hollow["metrics"].values():
        metric |= {"interval": None, "difference": None} if not has_items else {}
    kept = ("seconds", "components", "examples", "drift", "notes", "anomalies", "window")
    page = _Page(make_report(RunSummary.model_validate(hollow | {key: whole[key] for key in kept})))
    assert {"verdict", "training", "tuning", "steps"} <= set(page.sections)
    assert "nan" not in " ".join(page.texts.values()).lower().split()


@pytest.mark.slow
def test_thousands_of_columns_and_classes_are_capped() -> None:
    column = full_run().model_dump(mode="json")["details"]["columns"][0]
    columns = [column | {"name": f"column {i}"} for i in range(5000)]
    n = 10_000
    classes = [f"class {i}" for i in range(n)]
    details = full_run().model_dump(mode="json")["details"]
    details["columns"] = columns
    details["explanation"] |= {
        "classes": classes,
        "confusion": {"classes": classes[:40], "counts": [[1.0] * 40] * 40},
        "roc": [{"label": name, "x": [0, 1], "y": [0, 1], "area": 0.5} for name in classes[:10]],
    }
    slices = {
        f"class={name}": {"example_count": 40, "auc": 0.5, "accuracy": 0.5} for name in classes
    }
    html = make_report(full_run(details=details, slices=slices))
    assert len(html) < MAX_BYTES
    assert "24 of 5,000 columns have a chart" in html
    assert "and 4,800 more rows in summary.json" in html
    assert "15 of 10,000 slices are shown" in html


def test_the_report_replaces_an_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("earlier")
    run = RunSummary(run_id="1", pipeline="p", started="", strategy="default")
    write_report(StoredRun("p", RunLayout(tmp_path)), run)
    assert path.read_text().startswith("<!doctype html>")
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]


def test_earlier_runs_are_a_chart_over_time(month: str) -> None:
    charts = [
        attributes["aria-label"] or ""
        for _, attributes in _Page(month).tags
        if attributes.get("role") == "img"
    ]
    assert any(label.startswith("auc in 31 runs: 0.949 to 0.949") for label in charts)


def _whole(value: float, low: float, high: float) -> MetricSummary:
    return MetricSummary(value=value, in_service=None, needs="", ok=True, interval=(low, high))


def test_the_margin_of_chance_grows_with_the_number_of_slices() -> None:
    whole = _whole(0.8, 0.78, 0.82)
    slices = {"a": {"example_count": 400.0, "accuracy": 0.86}}
    ends = {"a": {"accuracy": (0.82, 0.90)}}
    (one,) = slice_differences("accuracy", whole, slices, ends, 1600, 0.95)
    # By hand: SE 0.0204 of the slice and 0.0102 of the whole, w 0.25; so that the margin is
    # 1.96 sqrt(0.0204² / 2 + 0.0102²).
    assert one.margin == pytest.approx(0.03464, abs=1e-4)
    assert one.is_beyond_chance
    many = {f"b{i}": {"example_count": 400.0, "accuracy": 0.8} for i in range(99)}
    ends |= {name: {"accuracy": (0.76, 0.84)} for name in many}
    first, *_ = slice_differences("accuracy", whole, slices | many, ends, 1600, 0.95)
    assert first.name == "a"
    # The quantile of 1 - 0.05 / 200 is 3.4808 instead of 1.96.
    assert first.margin == pytest.approx(0.03464 * 3.4808 / 1.96, abs=1e-3)
    assert not first.is_beyond_chance


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        "full",
        "hostile",
    ],
)
def test_report_runs_no_script_and_requests_nothing(
    kind: str, request: pytest.FixtureRequest, browser: Browser, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    path.write_text(request.getfixturevalue(kind))
    assert browser.check(path) == {
        "failed": ["verdict"],
        "month": ["verdict", "data", "slices", "certificate", "steps"],
    }.get(kind, SECTIONS)
    assert browser.evaluate("window.hit === undefined")
    assert browser.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
    # On a phone, wide tables scroll, but the page does not.
    browser.open(path, width=320)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 320


@pytest.mark.slow
@pytest.mark.parametrize(
    "scheme",
    [
        "light",
    ],
)
def test_axe_finds_nothing_serious(
    scheme: str, browser: Browser, tmp_path: Path, full: str
) -> None:
    path = tmp_path / "report.html"
    path.write_text(full)
    browser.open(path, scheme=scheme)
    assert browser.violations() == []


@pytest.mark.parametrize(
    ("ends", "shown"),
    [
        ((0.92, 0.98), "0.92 to 0.98"),
        ((195481.2, 257432.4), "195,481 to 257,432"),
        ((math.nan, 1.0), "-"),
    ],
)
def test_interval_is_rounded_by_its_width(ends: tuple[float, float], shown: str) -> None:
    assert interval(ends) == shown
