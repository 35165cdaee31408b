"""Builds the site of the documentation into `site/`: `make site`.

The pages are README.md, CONTRIBUTING.md, CHANGELOG.md and docs/. Files of the repository to which
they link become pages as well, so that every link works without a hosted repository. A dead link or
anchor, a missing picture, or a page outside the navigation of `zensical.toml` ends the build.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
EXIT_TRY_LATER = 75
_TOP_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FENCE = re.compile(r"(```.*?```)", re.DOTALL)
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)")


class SiteError(Exception):
    """A problem of the pages, as a sentence for their author."""


def find_pages(root: Path) -> dict[Path, str]:
    """Returns the name in the site of each Markdown file."""
    pages = {root / source: name for source, name in _TOP_PAGES.items()}
    return pages | {source: source.name for source in sorted((root / "docs").glob("*.md"))}


def write_pages(root: Path, target: Path) -> None:
    """Writes the pages with links that work inside the site, and the files of docs/."""
    pages = find_pages(root)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(root / "docs", target, ignore=shutil.ignore_patterns("*.md"))
    shutil.copy(root / "tools/site.css", target)
    problems: list[str] = []
    shown: set[Path] = set()

    for source, name in pages.items():

        def name_in_site(match: re.Match[str], source: Path = source) -> str:
            file = Path(os.path.normpath(source.parent / match[1]))
            if file in pages:
                return pages[file]
            if file.is_file() and file.is_relative_to(root / "docs"):
                return file.relative_to(root / "docs").as_posix()
            if file.is_file() and file.is_relative_to(root):
                shown.add(file)
                return f"files/{file.relative_to(root)}.md"
            problems.append(f"{source.relative_to(root)}: the link {match[1]} leads to no file")
            return match[1]

        parts = _FENCE.split(source.read_text())
        parts[::2] = [_LINK.sub(name_in_site, prose) for prose in parts[::2]]
        (target / name).write_text("".join(parts))
    for file in shown:
        _write_file_page(file, file.relative_to(root), target / "files")
    if problems:
        raise SiteError("\n".join(problems))


def _write_file_page(file: Path, name: Path, folder: Path) -> None:
    """Writes a page that shows a file of the repository."""
    page = folder / f"{name}.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(f"# {name}\n\n````{name.suffix[1:]}\n{file.read_text()}````\n")


def check_navigation(root: Path, navigation: list[Any]) -> None:
    """Raises SiteError unless the navigation holds each page once."""
    listed = sorted(_walk(navigation))
    pages = sorted(find_pages(root).values())
    problems = [
        *(f"{name} is not in the navigation" for name in pages if name not in listed),
        *(f"the navigation lists {name}, which does not exist" for name in set(listed) - {*pages}),
        *(f"the navigation lists {name} twice" for name in pages if listed.count(name) > 1),
    ]
    if problems:
        raise SiteError("\n".join(f"zensical.toml: {problem}" for problem in sorted(problems)))


def _walk(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                yield from _walk(value)


def install_zensical(root: Path) -> Path:
    """Installs zensical as in uv.lock into an environment of its own; returns its program."""
    uv = shutil.which("uv") or str(root / ".tools/bin/uv")
    environment = root / ".tools/site"
    subprocess.run(
        [uv, "sync", "--frozen", "--only-group", "site", "--no-install-project", "--quiet"],
        cwd=root,
        env={**os.environ, "UV_PROJECT_ENVIRONMENT": str(environment)},
        check=True,
    )
    return environment / "bin/zensical"


def main() -> int:
    """Builds the site; returns the exit code."""
    with (ROOT / "zensical.toml").open("rb") as file:
        settings = tomllib.load(file)["project"]
    try:
        check_navigation(ROOT, settings["nav"])
        write_pages(ROOT, ROOT / settings["docs_dir"])
    except SiteError as error:
        print(error, file=sys.stderr)
        return 1
    try:
        zensical = install_zensical(ROOT)
    except subprocess.CalledProcessError:
        print(
            "site: zensical could not be installed, for the reason that uv gives above; try again "
            "when the package index can be reached",
            file=sys.stderr,
        )
        return EXIT_TRY_LATER
    done = subprocess.run(
        [zensical, "build", "--strict", "--clean"], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    # A warning ends with a traceback of zensical, which tells authors nothing.
    warnings, _, traceback = _COLOUR.sub("", done.stderr).partition("Traceback")
    print(warnings, *traceback.splitlines()[-1:], sep="", file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
