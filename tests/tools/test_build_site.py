"""The site's pages: links lead to pages of the site, and dead links are errors."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tools.build_site import SiteError, check_navigation, write_pages

ROOT = Path(__file__).parents[2]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository of a few pages."""
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        (tmp_path / name).write_text(f"# {name}\n")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/a.yaml").write_text("name: a\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/run.svg").write_text("<svg/>")
    (tmp_path / "docs/start.md").write_text("# Start\n")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/site.css").touch()
    return tmp_path


def test_links_are_rewritten_to_pages_of_the_site(repository: Path, tmp_path: Path) -> None:
    (repository / "README.md").write_text("![run](docs/run.svg) [start](docs/start.md#a)\n")
    (repository / "docs/start.md").write_text(
        "[config](../configs/a.yaml) [top](../README.md#b) [here](#c) [web](https://a.b)\n"
        "```yaml\n[a](b)\n```\n"
    )
    write_pages(repository, tmp_path / "pages")
    index, start = ((tmp_path / "pages" / name).read_text() for name in ("index.md", "start.md"))
    assert index == "![run](run.svg) [start](start.md#a)\n"
    assert start.splitlines() == [
        "[config](files/configs/a.yaml.md) [top](index.md#b) [here](#c) [web](https://a.b)",
        *("```yaml", "[a](b)", "```"),
    ]
    assert "name: a" in (tmp_path / "pages/files/configs/a.yaml.md").read_text()
    assert (tmp_path / "pages/run.svg").exists()


def test_dead_links_and_pictures_are_named(repository: Path, tmp_path: Path) -> None:
    (repository / "docs/start.md").write_text("[a](gone.md#b)\n![c](gone.png)\n[d](../..)\n")
    with pytest.raises(SiteError) as raised:
        write_pages(repository, tmp_path / "pages")
    found = [(line.partition(":")[0], line.split()[3]) for line in str(raised.value).splitlines()]
    assert found == [("docs/start.md", link) for link in ("gone.md", "gone.png", "../..")]


def test_navigation_of_the_site_has_all_pages(tmp_path: Path) -> None:
    settings = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    check_navigation(ROOT, settings["nav"])
    write_pages(ROOT, tmp_path / "pages")
