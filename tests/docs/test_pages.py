"""Configs on the pages load, commands exist, and links have targets."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

import kubeflow_runner
import local_runner
from pipeline.config.loading import load_config
from pipeline.kubeflow.kubeflow_rules import load_for_kubeflow
from trainer_module.families import FAMILIES
from trainer_module.settings.tasks import TASKS

ROOT = Path(__file__).parents[2]
APPS = {
    "local_runner.py": local_runner.app,
    "kubeflow_runner.py": kubeflow_runner.app,
    "scopeline": local_runner.app,
    "scopeline-kubeflow": kubeflow_runner.app,
}
RUNNER = re.compile(r"(?:\S*python )?(?:\S*/)?(" + "|".join(APPS) + r")(?: |$)(.*)")
"""A command that starts a runner, by any of its names."""
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


CONFIGS = {
    page: found
    for page in PAGES
    if (found := [block for block in blocks(page, "yaml") if "\nname:" in "\n" + block])
}


def commands(page: Path) -> list[str]:
    """The commands of our runners in a page's blocks of bash and in its sentences."""
    text = "\n".join(blocks(page, "bash")).replace("\\\n", " ")
    lines = [re.split(r" [#>] ?", line)[0].strip() for line in text.splitlines()]
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    return [
        text for text in (*lines, *re.findall(r"`(scopeline[^`]*)`", prose)) if RUNNER.match(text)
    ]


@pytest.mark.parametrize("page", CONFIGS, ids=lambda page: page.stem)
def test_configs_on_a_page_are_valid(page: Path, tmp_path: Path, monkeypatch) -> None:
    for name, code in re.findall(r"```python\n# (\S+)\n(.*?)```", page.read_text(), re.DOTALL):
        (tmp_path / name).write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    registries = {"FAMILIES": FAMILIES, "TASKS": TASKS}
    added = re.findall(r'^(FAMILIES|TASKS)\["(\w+)"\] = "(\S+)"$', page.read_text(), re.MULTILINE)
    for registry, name, path in added:
        monkeypatch.setitem(registries[registry], name, path)
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "config.yaml"
    for text in CONFIGS[page]:
        for folder in re.findall(r"folder: (\w+)", text):
            (tmp_path / folder).mkdir(exist_ok=True)
        file.write_text(text)
        has_own_path = any(word in text for word in ("builtin:", "{YYYY}", "gymnasium:"))
        load = load_for_kubeflow if "\nkubeflow:" in text else load_config
        assert load(file, [] if has_own_path else [f"data.path={tmp_path}"]).name


def test_fragments_on_the_data_page_fit_its_config(tmp_path: Path) -> None:
    config, *others = (yaml.safe_load(text) for text in blocks(ROOT / "docs/your-data.md", "yaml"))
    # Those that are whole configs of their own are looked at by themselves.
    for fragment in (other for other in others if "name" not in other):
        data = {**config["data"], **fragment.pop("data", {})}
        if data["format"] == "images":
            fragment["features"] = {"image": {"type": "image", "height": 8, "width": 8}}
            fragment["model"] = {"kind": "cnn"}
        file = tmp_path / "config.yaml"
        file.write_text(yaml.safe_dump({**config, "data": data, **fragment}))
        load_config(file, [f"data.path={tmp_path}"])


def test_lines_and_commands_of_the_guides_fit_their_configs(tmp_path: Path) -> None:
    """A table's lines are laid over the config before it, by hand and by `--set`, to one result."""
    files: dict[str, Path] = {}
    checked: list[str] = []
    for part in re.split(r"(?m)^(?=```|\|)", (ROOT / "docs/guides.md").read_text()):
        if found := re.match(r"```yaml\n# (\S+)\n(.*)", part, re.DOTALL):
            files[found[1]] = latest = tmp_path / found[1]
            latest.write_text(found[2])
        elif part.startswith("```bash"):
            for command in part.splitlines()[1:]:
                words = shlex.split(command)
                places = [place for place, word in enumerate(words) if word == "--set"]
                overrides = [words[place + 1] for place in places]
                load_config(files[words[words.index("--config") + 1]], overrides)
                checked.append(command)
        elif part.startswith("| [") and part.count(" | ") >= 2:
            config = yaml.safe_load(latest.read_text())
            lines = re.findall(r"`(.*?)`", part.split(" | ")[1])
            for line in lines:
                config = laid_over(config, yaml.safe_load(line))
            (tmp_path / "laid_over.yaml").write_text(yaml.safe_dump(config))
            by_set = load_config(latest, [line.replace(": ", "=", 1) for line in lines])
            assert by_set == load_config(tmp_path / "laid_over.yaml"), part
            checked.append(part)
    assert len(checked) > 40


def laid_over(config: dict[str, Any], line: dict[str, Any]) -> dict[str, Any]:
    """A config with a line of YAML laid over it, section by section."""
    both = {key: value for key, value in config.items() if isinstance(value, dict)}
    return config | {
        key: laid_over(both[key], value) if key in both and isinstance(value, dict) else value
        for key, value in line.items()
    }


def test_commands_on_pages_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--help` ends each command after its options are parsed; the help is not formatted."""
    monkeypatch.setattr("typer.core.TyperCommand.format_help", lambda *_: None)
    monkeypatch.setattr("typer.core.TyperGroup.format_help", lambda *_: None)
    apps = {runner: typer.main.get_command(app) for runner, app in APPS.items()}
    found = {command for page in PAGES for command in commands(page)}
    assert len(found) > 100
    for command in sorted(found):
        runner, arguments = RUNNER.match(command).groups()
        code = apps[runner].main([*shlex.split(arguments), "--help"], standalone_mode=False)
        assert code == 0, command


def test_links_between_pages_have_targets() -> None:
    known = {page: anchors(page) for page in PAGES}
    for page in PAGES:
        prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for path, heading in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", prose):
            if "://" not in path:
                target = (page.parent / path).resolve() if path else page
                assert target.exists(), f"{page.name}: {path}"
                assert not heading or heading in known[target], f"{page.name}: {path}#{heading}"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings}


def test_make_help_lists_every_target() -> None:
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    listed = set(re.findall(r"^  make ([\w-]+)", done.stdout, re.MULTILINE))
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    assert listed == set(phony.group(1).split())
