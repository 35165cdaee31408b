"""Editors, by the JSON Schema, accept and explain the values that `plan` accepts."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from typer.testing import CliRunner

import local_runner
from pipeline.config.issues import find_conversions
from pipeline.config.json_schema import config_schema
from pipeline.config.loading import _parse, load_config
from pipeline.config.schema_file import SCHEMA_FILE, editor_line
from pipeline.config.settings import PipelineConfig
from trainer_module.errors import ConfigError

jsonschema = pytest.importorskip("jsonschema")
ROOT = Path(__file__).parents[3]
SHIPPED = sorted((ROOT / "configs").glob("*.yaml"))
BROKEN = sorted((ROOT / "tests" / "fixtures" / "broken").glob("*.yaml"))
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


def structural_problems(text: str) -> list[str]:
    """Returns the problems that do not come from a validator's own code."""
    raw = _parse(text)
    try:
        config = PipelineConfig.model_validate(raw)
    except ValidationError as error:
        return [d["msg"] for d in error.errors() if d["type"] != "value_error"]
    return [str(issue) for issue in find_conversions(raw, config)]


def plan_accepts(text: str, folder: Path) -> bool:
    (folder / "config.yaml").write_text(text)
    try:
        load_config(folder / "config.yaml")
    except ConfigError:
        return False
    return True


def check_agreement(text: str, folder: Path) -> None:
    problems = structural_problems(text)
    if editor_accepts(text):
        assert problems == []
    else:
        assert problems or not plan_accepts(text, folder)


@pytest.mark.parametrize("text", [*(path.read_text() for path in SHIPPED), *DOCS])
def test_editor_accepts_valid_configs(text: str) -> None:
    assert editor_accepts(text)


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.stem)
def test_editor_refuses_what_plan_refuses_by_the_types(path: Path, tmp_path: Path) -> None:
    text = path.read_text()
    try:
        _parse(text)
    except yaml.YAMLError:
        return  # The editor's parser reports it.
    check_agreement(text, tmp_path)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, child in items:
        yield (*path, key)
        if isinstance(child, dict | list):
            yield from places(child, (*path, key))


def replaced(config: Any, path: tuple[Any, ...], value: Any) -> str:
    changed = copy.deepcopy(config)
    parent = changed
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    return str(yaml.safe_dump(changed, sort_keys=False))


WRONG = [True, -1, 1.5, "word", "3", None, [], ["a"], {"unknown": 1}]


def test_editor_and_plan_agree_on_changed_values(tmp_path: Path) -> None:
    for path in SHIPPED:
        config = _parse(path.read_text())
        for index, place in enumerate([*places(config)][::3]):
            value = WRONG[index % len(WRONG)]
            check_agreement(replaced(config, place, value), tmp_path)


START = "name: x\ndata: {format: csv, path: builtin:taxi, label: big_tipper}\n"
REFUSED = [
    "task: binary\nnmae: y",
    "task: ordinal",
    "task: {kind: binary, order: [a, b, c]}",
    "task: binary\ntrain: {epochs: three}",
    'task: binary\ntrain: {epochs: "3"}',
    "task: binary\ntrain: {epochs: true}",
    "task: binary\ntrain: {epochs: 0}",
    "task: binary\ntrain: {strategy: mirror}",
    "task: binary\ntrain: {strategy: {kind: mirrored, tpu: x}}",
    "task: binary\ntrain: {strategy: {kind: mirrored, devices: [gpu]}}",
    "task: binary\ntrain: {optimizer: {kind: adam, momentum: 0.9}}",
    "task: binary\ntrain: {loss: {kind: cross_entropy, gamma: 3}}",
    "task: binary\ntrain: {learning_rate: {schedule: cosin, initial: 1}}",
    "task: binary\nmodel: tabluar",
    "task: binary\nmodel: {kind: mlp, filters: [3]}",
    "task: binary\nevaluate: {confidence: 2}",
    "task: binary\nevaluate: {metrics: [acuracy]}",
    "task: binary\nevaluate: {explain: 1}",
    "task: binary\nfeatures: {a: {type: imgae}}",
    "task: binary\nfeatures: {a: {type: image, heigth: 3}}",
    "task: binary\nschedule: {cron: 0 3 * * *, poll: 5 minutes}",
    "task: binary\nkubeflow: {environment: {a-b: c}}",
]
ACCEPTED = [
    "task: {kind: binary}",
    "task: binary\ntrain: {learning_rate: 1e-3, steps: 1e3}",
    "task: binary\ntrain: {optimizer: {kind: sgd, momentum: 0.9}}",
    "task: binary\ntrain: {strategy: mirrored}",
    "task: binary\ntrain: {strategy: {kind: one_device, device: cpu:0}}",
    "task: binary\nmodel: {kind: mlp, hidden_units: [3]}",
    "task: binary\nevaluate: {explain: off, metrics: [accuracy]}",
    "task: binary\nkubeflow: {resources: {default: {cpu: 1, memory: 4Gi}}}",
    "task: binary\ncard: {owner: 2026-01-05}",
]


@pytest.mark.parametrize("rest", REFUSED)
def test_editor_and_plan_refuse(rest: str, tmp_path: Path) -> None:
    assert not editor_accepts(START + rest)
    assert not plan_accepts(START + rest, tmp_path)


@pytest.mark.parametrize("rest", ACCEPTED)
def test_editor_and_plan_accept(rest: str, tmp_path: Path) -> None:
    assert editor_accepts(START + rest)
    assert plan_accepts(START + rest, tmp_path)


def test_every_key_is_explained_with_its_default() -> None:
    keys = [key for section in SECTIONS.values() for key in section.get("properties", {}).values()]
    assert len(keys) > 400
    assert all(key["markdownDescription"] for key in keys)
    retries = SCHEMA["$defs"]["TrainSettings"]["properties"]["retries"]
    assert retries["markdownDescription"].endswith("\n\nDefault: `3`")


def test_every_value_is_explained() -> None:
    enums = [section for section in SECTIONS.values() if "enum" in section]
    assert len(enums) > 15
    for enum in enums:
        texts = enum["markdownEnumDescriptions"]
        assert all(texts), enum["enum"]
        assert len(texts) == len(enum["enum"])


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_first_line_of_a_shipped_config_names_the_schema(path: Path) -> None:
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

    for _ in range(2):
        assert "# yaml-language-server: $schema=config.schema.json" in run()
        assert json.loads(Path("config.schema.json").read_text()) == SCHEMA
    assert "$schema=editor/a.json" in run("editor/a.json")
    assert json.loads(run("-")) == SCHEMA
    Path("mine.json").write_text("{}")
    assert "add --force to replace it" in run("mine.json")
    assert Path("mine.json").read_text() == "{}"
    run("mine.json", "--force")
    assert json.loads(Path("mine.json").read_text()) == SCHEMA


def test_hidden_files_are_not_proposed_as_configs(tmp_path: Path) -> None:
    for name in (".confg.yaml", "config.schema.json", "confg.yaml"):
        (tmp_path / name).write_text("name: x")
    with pytest.raises(ConfigError, match=r"did you mean `.*/confg\.yaml`"):
        load_config(tmp_path / "config.yaml")
    (tmp_path / "confg.yaml").unlink()
    with pytest.raises(ConfigError, match=r"no such config file$"):
        load_config(tmp_path / "config.yaml")
