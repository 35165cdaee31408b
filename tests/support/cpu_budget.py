"""A pytest plugin: the CPU seconds of each test and its children, and the fast tier's limits.

Fixtures of scope `session` are shared by many tests, so their seconds are counted apart, and so are
phases in which a test is the first to import a large library. `tests.support.warm` appends the
seconds of the processes that it forks to the file that `VARIABLE` names.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "TESTS_CPU_FILE"
FAST = "not slow"
"""The expression of markers that selects the fast tier."""
TIER_SECONDS = 750
TEST_SECONDS = 1
"""Of a test without the marker `proof`. Beyond these it is listed; beyond twice as many, which the
first use of a library and a busy machine explain no more, the tier fails."""
_LIBRARY_MODULES = 100
"""So many new modules in a phase of a test are a library's."""


class CpuBudget:
    """Measures in each of pytest's processes, and adds up in the one that reports."""

    def __init__(self, file: Path) -> None:
        """Measures from now on; `file` is where forked processes leave their seconds."""
        self._file = file
        self._shared = 0.0
        self._last = (self._seconds(), 0.0, len(sys.modules))
        self._tests: Counter[str] = Counter()
        self._sum_shared = 0.0
        self._limited: set[str] = set()

    def _seconds(self) -> float:
        return _own_seconds() + sum(map(float, self._file.read_text().split()))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        """Counts a shared fixture, which may set up other ones."""
        seconds, shared = self._seconds(), self._shared
        try:
            return (yield)
        finally:
            if fixturedef.scope == "session":
                self._shared = shared + self._seconds() - seconds

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
        """Counts the teardown after the last test of a process, which ends shared fixtures."""
        seconds = self._seconds()
        try:
            return (yield)
        finally:
            if nextitem is None:
                self._shared += self._seconds() - seconds

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Notes the seconds of a phase of a test; xdist's workers send them with the report."""
        report = yield
        now = (self._seconds(), self._shared, len(sys.modules))
        spent, shared, modules = (a - b for a, b in zip(now, self._last, strict=True))
        self._last = now
        report.cpu = (0.0, spent) if modules > _LIBRARY_MODULES else (spent - shared, shared)
        report.is_limited = item.get_closest_marker("proof") is None
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Adds up, in the process that reports."""
        # The report of a worker that crashed has no seconds.
        own, shared = getattr(report, "cpu", (0.0, 0.0))
        self._tests[report.nodeid] += own
        self._sum_shared += shared
        if getattr(report, "is_limited", False):
            self._limited.add(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        """Prints the sums, the dearest tests, and what is beyond a limit of the fast tier."""
        title = f"{self._total:.0f} CPU seconds, {self._sum_shared:.0f} of them shared"
        terminalreporter.section(title)
        shown = [test for test, _ in self._tests.most_common(10)]
        if config.option.markexpr == FAST:
            shown += sorted(test for test in self._limited if self._tests[test] > TEST_SECONDS)
        for test in dict.fromkeys(shown):
            terminalreporter.write_line(f"{self._tests[test]:6.1f} s  {test}")
        for problem in self._problems(config):
            terminalreporter.write_line(problem, red=True)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fails the fast tier where it, or a test, is beyond its limit."""
        if self._problems(session.config):
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED

    @property
    def _total(self) -> float:
        return self._tests.total() + self._sum_shared

    def _problems(self, config: pytest.Config) -> list[str]:
        """Returns what is beyond a limit, if the fast tier is what runs."""
        if config.option.markexpr != FAST:
            return []
        problems = [
            f"{test} needs more than {TEST_SECONDS} CPU s: mark it as slow"
            for test in sorted(self._limited)
            if self._tests[test] > 2 * TEST_SECONDS
        ]
        if self._total > TIER_SECONDS:
            problems.append(f"The fast tests need more than {TIER_SECONDS} CPU s together.")
        return problems


def _own_seconds() -> float:
    """Returns the CPU seconds of this process and its ended children."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def note_seconds() -> None:
    """Appends what this process and its ended children have used; for a process that ends."""
    file = os.environ.get(VARIABLE)
    if file is not None and os.path.exists(file):  # noqa: PTH110
        with open(file, "a") as lines:  # noqa: PTH123
            lines.write(f"{_own_seconds():.3f}\n")


def pytest_configure(config: pytest.Config) -> None:
    """Registers the measurement."""
    descriptor, path = tempfile.mkstemp(prefix="tests-cpu-")
    os.close(descriptor)
    os.environ[VARIABLE] = path
    config.pluginmanager.register(CpuBudget(Path(path)), "cpu_budget_of_tests")
    config.add_cleanup(Path(path).unlink)
