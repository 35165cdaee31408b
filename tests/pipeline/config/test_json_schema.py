"""Editors, by the JSON Schema, accept and explain the values that `plan` accepts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import local_runner
from pipeline.config.json_schema import config_schema
from pipeline.config.loading import load_config
from pipeline.config.schema_file import SCHEMA_FILE, editor_line
from trainer_module.errors import ConfigError

jsonschema = pytest.importorskip("jsonschema")
ROOT = Path(__file__).parents[3]
SHIPPED = sorted((ROOT / "configs").glob("*.yaml"))
SCHEMA = json.loads(config_schema())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
SECTIONS = {"": SCHEMA, **SCHEMA["$defs"]}
DOCS = [
    block
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
    if re.search(r"^name:", block, re.MULTILINE) and "spheres_runner.py" not in block
]
"""The configs in the docs, but one whose own runner registers its task."""


class EditorLoader(yaml.SafeLoader):
    """Reads plain scalars by the core schema of YAML 1.2, as yaml-language-server does."""

    yaml_implicit_resolvers: dict[str, Any] = {}


for _name, _pattern in {
    "bool": "true|True|TRUE|false|False|FALSE",
    "null": "~|null|Null|NULL|",
    "int": "[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+",
    "float": r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan",
}.items():
    EditorLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_name}", re.compile(f"^(?:{_pattern})$"), None
    )


def with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): with_text_keys(child) for key, child in value.items()}
    return [with_text_keys(child) for child in value] if isinstance(value, list) else value


def editor_accepts(text: str) -> bool:
    return VALIDATOR.is_valid(with_text_keys(yaml.load(text, EditorLoader)))  # noqa: S506


def plan_accepts(text: str, folder: Path) -> bool:
    (folder / "config.yaml").write_text(text)
    try:
        load_config(folder / "config.yaml")
    except ConfigError:
        return False
    return True


def test_editor_accepts_shipped_and_documented_configs() -> None:
    for text in [*(path.read_text() for path in SHIPPED), *DOCS]:
        assert editor_accepts(text), text


START = "name: x\ndata: {format: csv, path: builtin:taxi, label: big_tipper}\ntask: binary\n"


@pytest.mark.parametrize(
    "rest",
    [
        "nmae: y",
        'train: {epochs: "3"}',
        "train: {epochs: true}",
        "train: {epochs: 0}",
        "train: {strategy: {kind: mirrored, tpu: x}}",
        "train: {optimizer: {kind: adam, momentum: 0.9}}",
        "model: tabluar",
        "model: {kind: mlp, filters: [3]}",
        "evaluate: {metrics: [acuracy]}",
        "features: {a: {type: image, heigth: 3}}",
        "schedule: {cron: 0 3 * * *, poll: 5 minutes}",
    ],
)
def test_editor_and_plan_refuse(rest: str, tmp_path: Path) -> None:
    assert not editor_accepts(START + rest)
    assert not plan_accepts(START + rest, tmp_path)


def test_every_key_is_explained_with_its_default() -> None:
    keys = [key for section in SECTIONS.values() for key in section.get("properties", {}).values()]
    assert len(keys) > 400
    assert all(key["markdownDescription"] for key in keys)
    retries = SCHEMA["$defs"]["TrainSettings"]["properties"]["retries"]
    assert retries["markdownDescription"].endswith("\n\nDefault: `3`")


def test_first_line_of_a_shipped_config_names_the_schema() -> None:
    for path in SHIPPED:
        first, *_ = path.read_text().splitlines()
        assert first == editor_line(ROOT / "configs" / SCHEMA_FILE, path.parent)
        assert (path.parent / first.partition("$schema=")[2]).is_file()


def test_schema_is_written_and_never_replaces_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> str:
        done = CliRunner().invoke(local_runner.app, ["schema", *words])
        return str(done.exception or done.output)

    assert "$schema=config.schema.json" in run()
    assert json.loads(Path("config.schema.json").read_text()) == SCHEMA
    Path("mine.json").write_text("{}")
    assert "--force" in run("mine.json")
    assert Path("mine.json").read_text() == "{}"
    run("mine.json", "--force")
    assert json.loads(Path("mine.json").read_text()) == SCHEMA
