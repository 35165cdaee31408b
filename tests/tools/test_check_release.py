"""Which tags may be released, and which texts their releases have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import check_release

ENTRY = "### Added\n\n- Ice cream.\n"
CHANGELOG = f"""# Changelog

## [Unreleased]

### Added

## [0.2.0] - 2026-11-27

{ENTRY}
## [0.1.0] - 2026-01-31

- Everything else.
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    return tmp_path


def test_section_of_the_version_is_the_text_of_the_release(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_release.main(["v0.2.0"], project) == 0
    assert capsys.readouterr().out == ENTRY


@pytest.mark.parametrize("tag", ["0.2.0", "v0.2.0-final", "v0.2.0\n", "v0.3.0"])
def test_other_tags_are_refused(tag: str, project: Path, capsys: pytest.CaptureFixture) -> None:
    assert check_release.main([tag], project) == 1
    assert "0.2.0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("found", "instead", "problems"),
    [
        ("## [0.2.0]", "## [0.1.9]", ["0 sections"]),
        ("2026-11-27", "2026-11-31", ["2026-11-31"]),
        (
            f" - 2026-11-27\n\n{ENTRY}",
            "\n",
            ["date ''", "no entry"],
        ),
    ],
)
def test_incomplete_changelog_is_refused(
    found: str,
    instead: str,
    problems: list[str],
    project: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert found in CHANGELOG
    (project / "CHANGELOG.md").write_text(CHANGELOG.replace(found, instead))
    assert check_release.main(["v0.2.0"], project) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(problems)
    assert all(problem in line for problem, line in zip(problems, lines, strict=True))


def test_script_needs_no_packages_and_reads_this_project() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", check_release.__file__, "v99.0.0"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("found the tag v99.0.0, but pyproject.toml has version ")
