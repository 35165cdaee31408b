"""The workflows of .github: rights, pinned actions, and commands that exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PINNED = re.compile(r"uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
LOCAL = re.compile(r"uses: \./\.github/workflows/[\w-]+\.yml")


def read_jobs(path: Path) -> dict[str, dict[str, Any]]:
    return yaml.safe_load(path.read_text())["jobs"]


def read_scripts() -> list[str]:
    jobs = [job for path in WORKFLOWS for job in read_jobs(path).values()]
    return [step["run"] for job in jobs for step in job.get("steps", []) if "run" in step]


def make_targets(code: str) -> set[str]:
    """The targets that commands of `make` name."""
    found = re.findall(r"\bmake ((?:[a-z]+(?:-[a-z]+)*(?: |\b))+)", code)
    return {target for words in found for target in words.split()}


def read_code(page: Path) -> str:
    """The code of a page: its fenced blocks, and what stands between backticks."""
    return "\n".join(re.findall(r"```.*?```|`[^`\n]+`", page.read_text(), re.DOTALL))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_jobs_have_few_rights_a_timeout_and_pinned_actions(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {}
    assert workflow["concurrency"]
    for job in workflow["jobs"].values():
        writes = {right for right, access in job["permissions"].items() if access == "write"}
        assert writes <= {"packages"} or writes <= {"contents"}
        assert "timeout-minutes" in job or "uses" in job
    uses = [line.strip(" -") for line in path.read_text().splitlines() if "uses: " in line]
    assert uses
    assert not [line for line in uses if not PINNED.fullmatch(line) and not LOCAL.match(line)]


def test_scripts_of_workflows_are_valid_bash() -> None:
    scripts = read_scripts()
    assert len(scripts) > 5
    for script in scripts:
        done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_programs_named_in_workflows_exist() -> None:
    programs = set(re.findall(r"tools/\w+\.\w+", "".join(read_scripts())))
    assert programs
    assert not [program for program in programs if not (ROOT / program).is_file()]


def test_workflow_tests_each_supported_python() -> None:
    matrix = read_jobs(ROOT / ".github/workflows/ci.yml")["test"]["strategy"]["matrix"]
    setup = (ROOT / "tools" / "setup.sh").read_text()
    assert f"Python {', '.join(matrix['python'][:-1])} or {matrix['python'][-1]}" in setup


def test_targets_of_make_named_anywhere_exist() -> None:
    rules = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / ".github").glob("*.md")]
    code = [*read_scripts(), (ROOT / ".ci" / "run").read_text(), *map(read_code, pages)]
    named = {target for text in code for target in make_targets(text)}
    assert {"lint", "test", "wheel", "site"} <= named
    assert named <= rules
