"""The map of the house in CONTRIBUTING.md names what there is, and every room."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOTS = ("pipeline", "components", "trainer_module")


def named() -> Iterator[Path]:
    """The paths of the map, below the root."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    tree = re.search(r"^## The house\n.*?^```\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[1]
    folders: list[Path] = []
    for line in tree.splitlines():
        names, indent = re.split(r" {2,}", line.strip())[0], len(line) - len(line.lstrip())
        if indent > 8:
            continue  # It goes on with what is said.
        for name in names.split(", "):
            if name != "...":
                path = (folders[indent // 2 - 1] if indent else Path()) / name
                folders[indent // 2 :] = [path]
                yield path


def test_the_map_of_the_house_is_right() -> None:
    paths = list(named())
    assert len(paths) > 80
    assert [str(path) for path in paths if not (ROOT / path).exists()] == []
    rooms = {path.relative_to(ROOT) for r in ROOTS for path in (ROOT / r).glob("*/")}
    unnamed = sorted(str(r) for r in rooms - set(paths) if (ROOT / r / "__init__.py").exists())
    assert unnamed == [], "a line in CONTRIBUTING.md says what belongs in them"


def test_what_is_added_goes_where_there_is_something() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text().split("## Adding things")[1]
    paths = re.findall(rf"`((?:{'|'.join(ROOTS)}|tests)/[^`:]*)`", text)
    assert len(paths) > 30
    known = [re.split(r"<\w+>", path)[0] for path in paths]
    assert [path for path in known if not any(ROOT.glob(f"{path}*"))] == []
