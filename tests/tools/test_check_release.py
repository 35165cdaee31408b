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


def test_the_section_of_the_version_is_the_text_of_the_release(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_release.main(["v0.2.0"], project) == 0
    assert capsys.readouterr().out == ENTRY


def test_a_release_candidate_is_a_version(project: Path) -> None:
    for file in ("pyproject.toml", "CHANGELOG.md"):
        path = project / file
        path.write_text(path.read_text().replace("0.2.0", "0.2.0rc1"))
    assert check_release.main(["v0.2.0rc1"], project) == 0


@pytest.mark.parametrize("tag", ["0.2.0", "v0.2", "v0.2.0-final", "v0.2.0\n", "", "v\u0660.2.0"])
def test_a_tag_that_is_no_version(tag: str, project: Path, capsys: pytest.CaptureFixture) -> None:
    assert check_release.main([tag], project) == 1
    assert f"found the tag {tag!r}; the tag of this version is v0.2.0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("found", "instead", "problems"),
    [
        ("## [0.2.0]", "## [0.1.9]", ["has 0 sections for 0.2.0"]),
        ("## [0.1.0]", "## [0.2.0]", ["has 2 sections for 0.2.0"]),
        ("- 2026-11-27", "", ["has the date '' for 0.2.0"]),
        ("2026-11-27", "2026-11-31", ["has the date '2026-11-31' for 0.2.0"]),
        ("2026-11-27", "20261127", ["has the date '20261127' for 0.2.0"]),
        ("- Ice cream.", "", ["has no entry for 0.2.0"]),
        ("## [Unreleased]", "## [Unreleased]\n\n- A cone.", ["has entries under [Unreleased]"]),
        (
            f" - 2026-11-27\n\n{ENTRY}",
            "\n",
            ["has the date '' for 0.2.0", "has no entry for 0.2.0"],
        ),
    ],
)
def test_a_changelog_that_lacks_something(
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


def test_another_version_than_that_of_the_project(
    project: Path, capsys: pytest.CaptureFixture
) -> None:
    assert check_release.main(["v0.3.0"], project) == 1
    error = capsys.readouterr().err
    assert "found the tag v0.3.0, but pyproject.toml has version 0.2.0" in error


def test_the_script_needs_no_packages_and_reads_this_project() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", check_release.__file__, "v99.0.0"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("found the tag v99.0.0, but pyproject.toml has version ")
