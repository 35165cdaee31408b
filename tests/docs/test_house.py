"""The map of folders in CONTRIBUTING.md is complete, and paths on pages exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOTS = ("pipeline", "components", "trainer_module")


def mapped_paths() -> Iterator[Path]:
    """The paths of the map, below the root."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    tree = re.search(r"^## The architecture\n.*?^```\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[1]
    folders: list[Path] = []
    for line in tree.splitlines():
        names, indent = re.split(r" {2,}", line.strip())[0], len(line) - len(line.lstrip())
        if indent > 8:
            continue  # The description goes on.
        for name in names.split(", "):
            if name != "...":
                path = (folders[indent // 2 - 1] if indent else Path()) / name
                folders[indent // 2 :] = [path]
                yield path


def test_map_of_folders_is_complete() -> None:
    paths = list(mapped_paths())
    assert len(paths) > 80
    assert [str(path) for path in paths if not (ROOT / path).exists()] == []
    rooms = {path.relative_to(ROOT) for r in ROOTS for path in (ROOT / r).glob("*/")}
    unnamed = sorted(str(r) for r in rooms - set(paths) if (ROOT / r / "__init__.py").exists())
    assert unnamed == [], "describe them in CONTRIBUTING.md"


def test_paths_named_on_pages_exist() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    pages += [ROOT / ".pre-commit-config.yaml", ROOT / "Makefile"]
    folders = "|".join((*ROOTS, "tests", "tools", "benchmarks", "deploy"))
    # Of a module that is to be written, `room/<name>.py`, its folder.
    path = re.compile(rf"(?<![\w/.-])(?:{folders})/[\w/.-]+(?![\w<])")
    found = {(page.name, name) for page in pages for name in path.findall(page.read_text())}
    assert len(found) > 80
    missing = [(page, name) for page, name in found if not (ROOT / name.rstrip(".")).exists()]
    assert sorted(missing) == []
