"""Checks that a tag may be released, and prints the section of CHANGELOG.md about its version.

The version stands in pyproject.toml alone. The script needs nothing but Python's standard library.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from datetime import date
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
EXIT_FAILED = 1
UNRELEASED = "Unreleased"
_TAG = re.compile(r"v(\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?)", re.ASCII)
_HEADING = re.compile(r"^## \[(.+?)\](.*)$", re.MULTILINE)


class Section(NamedTuple):
    """The part of a changelog about one version."""

    name: str
    date: str
    text: str

    @property
    def is_empty(self) -> bool:
        """Whether the section has no list entry."""
        return re.search(r"^- \S", self.text, re.MULTILINE) is None


def read_sections(changelog: str) -> list[Section]:
    """Returns the sections of a changelog, newest first."""
    _, *parts = _HEADING.split(changelog)
    triples = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return [
        Section(name, rest.rstrip().removeprefix(" - "), text.strip())
        for name, rest, text in triples
    ]


def find_problems(tag: str, version: str, sections: list[Section]) -> list[str]:
    """Returns the reasons why the tag may not be released, each with a remedy."""
    match = _TAG.fullmatch(tag)
    if match is None:
        return [f"found the tag {tag!r}; the tag of this version is v{version}"]
    if match[1] != version:
        return [
            f"found the tag {tag}, but pyproject.toml has version {version}; "
            f'write version = "{match[1]}" there, or tag v{version}'
        ]
    problems = [
        f"CHANGELOG.md has entries under [{UNRELEASED}]; move them below ## [{version}]"
        for section in sections
        if section.name == UNRELEASED and not section.is_empty
    ]
    return problems + _find_section_problems(version, [s for s in sections if s.name == version])


def _find_section_problems(version: str, sections: list[Section]) -> list[str]:
    heading = f"## [{version}] - {date.today().isoformat()}"
    if len(sections) != 1:
        return [
            f"CHANGELOG.md has {len(sections)} sections for {version}; "
            f"write one, with the heading {heading}"
        ]
    problems = []
    if not _is_date(sections[0].date):
        problems.append(
            f"CHANGELOG.md has the date {sections[0].date!r} for {version}; write {heading}"
        )
    if sections[0].is_empty:
        problems.append(f"CHANGELOG.md has no entry for {version}; write one that begins with '- '")
    return problems


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Prints the section of the version, or the reasons why the tag may not be released."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tag", help="the tag of the release, such as v0.1.0")
    tag = parser.parse_args(arguments).tag
    version = str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])
    sections = read_sections((root / "CHANGELOG.md").read_text())
    problems = find_problems(tag, version, sections)
    if problems:
        print("\n".join(problems), file=sys.stderr)
        return EXIT_FAILED
    print(next(section.text for section in sections if section.name == version))
    return 0


if __name__ == "__main__":
    sys.exit(main())
