"""`report`, `compare` and `show` from the command line, and the pages of `report --serve`."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.records.summary import ErrorSummary, Status
from tests.support import warm
from tests.support.browser import Browser
from tests.support.stored_runs import HOSTILE, details_of, metric, store, summary_of

ROOT = Path(__file__).parents[3]
FIRST, SECOND = "2026-01-05T03-00-00.000001", "2026-01-06T03-00-00.000001"


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of cars, one of taxi that failed, and a damaged one."""
    folder = tmp_path_factory.mktemp("output")
    store(folder, summary_of(FIRST, details=details_of({"train": {"epochs": 2}})))
    better = {"auc": metric(0.95, 0.92, 0.98)}
    store(folder, summary_of(SECOND, metrics=better, details=details_of({"train": {"epochs": 3}})))
    error = ErrorSummary(component="Trainer", message=f"no memory {HOSTILE}", log="run.log")
    failed = {"status": Status.FAILED, "error": error, "metrics": {HOSTILE: metric(1, 1, 1)}}
    store(folder, summary_of("2026-01-07", "taxi", components=[], **failed))
    broken = folder / "taxi" / "runs" / "2026-01-08"
    broken.mkdir()
    (broken / "summary.json").write_text('{"run_id": 1')
    (folder / "secret.txt").write_text("secret")
    (folder / "cars.yaml").write_text("name: cars\nunfinished: [1]\n")
    return folder


def scopeline(output: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a command for the pipeline of a config that is being edited, and therefore invalid."""
    name, *others = arguments
    return warm.run(
        [
            *(sys.executable, str(ROOT / "local_runner.py"), name, str(output / "cars.yaml")),
            *(*others, "--output", str(output)),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "COLUMNS": "200"},
    )


@pytest.mark.slow
def test_report_prints_the_path_and_writes_a_missing_report(output: Path) -> None:
    path = output / "cars" / "runs" / SECOND / "report.html"
    assert not path.exists()
    done = scopeline(output, "report")
    assert (done.returncode, done.stdout.strip()) == (0, str(path)), done.stderr
    assert SECOND in path.read_text()
    path.write_text("old")
    assert scopeline(output, "report", SECOND, "--no-open").stdout.strip() == str(path)
    assert path.read_text() == "old"
    assert scopeline(output, "report", "--again").returncode == 0
    assert SECOND in path.read_text()


def test_compare_shows_tables_and_json(output: Path) -> None:
    done = scopeline(output, "compare", "previous")
    assert done.returncode == 0, done.stderr
    assert re.search(r"auc +0\.8 +0\.95 +\+0\.15 +.* more than chance", done.stdout)
    assert re.search(r"train\.epochs +2 +3", done.stdout)
    fields = json.loads(scopeline(output, "compare", "previous", "last", "--json").stdout)
    assert (fields["first"]["run"], fields["second"]["run"]) == (FIRST, SECOND)
    (auc,) = fields["metrics"]
    assert auc["difference"] == pytest.approx(0.15)
    assert auc["interval"][0] > 0
    assert fields["config"] == [{"name": "train.epochs", "first": "2", "second": "3"}]


def test_show_reads_results_from_the_summary(output: Path) -> None:
    done = scopeline(output, "show", "evaluator")
    assert re.search(r"auc +0\.95 +0\.92 to 0\.98", done.stdout), done.stderr
    trainer = scopeline(output, "show", "Trainer", "--rows", "1").stdout
    assert re.search(r"\n2 +0\.25", trainer)
    assert "and 1 more; --rows N shows more" in trainer


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "Trainr"), "Trainr: there is no such component"),
        (("show", "Trainer", "--run", "2027"), "run 2027: pipeline cars has no such run"),
    ],
)
def test_unknown_names_are_refused_with_a_suggestion(
    output: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = scopeline(output, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(message)
    assert "Traceback" not in done.stderr


@dataclass(frozen=True)
class Site:
    """The address of a server."""

    port: int

    def get(self, path: str, host: str = "localhost") -> tuple[int, str, dict[str, str]]:
        """Returns the code, the body and the headers of a response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path, headers={"Host": host})
        response = connection.getresponse()
        return response.status, response.read().decode(), dict(response.getheaders())


@pytest.fixture(scope="module")
def site(output: Path) -> Iterator[Site]:
    command = [sys.executable, str(ROOT / "local_runner.py"), "report", "--serve", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--output", str(output)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    found = re.match(r"http://127\.0\.0\.1:(\d+)/ shows the runs below ", process.stdout.readline())
    assert found, process.communicate()
    yield Site(int(found[1]))
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")


@pytest.mark.slow
def test_list_has_the_runs_of_all_pipelines_and_filters(site: Site) -> None:
    code, page, headers = site.get("/")
    assert code == 200
    assert headers["content-security-policy"].startswith("default-src 'none'")
    rows = re.findall(r'<th scope="row" class="word"><a href="/runs/(\w+)/([^"]+)">', page)
    assert rows == [
        ("taxi", "2026-01-08"), ("taxi", "2026-01-07"), ("cars", SECOND), ("cars", FIRST),
    ]  # fmt: skip
    assert "is damaged, or a later release wrote it" in page
    _, filtered, _ = site.get("/?pipeline=cars&sort=started")
    assert [m[1] for m in re.finditer(r'href="/runs/\w+/(2026[^"]+)"', filtered)] == [FIRST, SECOND]
    assert "No run matches the filters" in site.get("/?status=held")[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/?pipeline=cars&sort=started", SECOND[:10]),
    ],
)
def test_a_browser_shows_the_list_and_a_comparison(
    site: Site, browser: Browser, path: str, text: str
) -> None:
    address = f"http://127.0.0.1:{site.port}{path}"
    browser.check(address)
    assert text in browser.evaluate("document.body.innerText")
    assert browser.violations() == []
    browser.open(address, width=320, scheme="dark")
    assert browser.evaluate("document.documentElement.scrollWidth") <= 320
    assert browser.violations() == []


@pytest.mark.slow
def test_comparison_and_report_are_pages_without_scripts(site: Site) -> None:
    code, page, _ = site.get(f"/compare?first=cars/{FIRST}&second=cars/{SECOND}")
    assert code == 200
    assert "more than chance" in page
    for path in (
        "/",
        "/runs/taxi/2026-01-07",
        f"/compare?first=taxi/2026-01-07&second=cars/{FIRST}",
    ):
        code, page, _ = site.get(path)
        assert code == 200
        assert "<script" not in page
        assert "\u202e" not in page


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/runs/cars/..%2f..%2f..%2fsecret.txt", 404),
        ("/secret.txt", 404),
        ("/compare?first=cars/../../secret.txt&second=", 404),
        ("/runs/taxi/2026-01-08", 500),
    ],
)
def test_only_pages_of_runs_are_served(site: Site, path: str, code: int) -> None:
    answer, page, _ = site.get(path)
    assert answer == code
    assert page.count("secret") == 0
    assert "All runs" in page


@pytest.mark.slow
def test_a_link_in_place_of_a_report_is_not_followed(site: Site, output: Path) -> None:
    path = output / "cars" / "runs" / FIRST / "report.html"
    path.symlink_to(output / "secret.txt")
    code, page, _ = site.get(f"/runs/cars/{FIRST}")
    assert code == 200
    assert page != "secret"
    assert FIRST in page


@pytest.mark.slow
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
    ],
)
def test_requests_for_other_hosts_are_refused(site: Site, host: str) -> None:
    code, page, _ = site.get("/", host)
    assert code == 400
    assert "cars" not in page
