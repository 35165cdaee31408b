"""Configs are loaded, overridden and refused: each problem at its key."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest
import yaml

import local_runner
from pipeline.config import loading
from pipeline.config.loading import load_config
from pipeline.config.settings import PipelineConfig
from pipeline.config.yaml_core import ConfigDumper
from trainer_module.errors import ConfigError
from trainer_module.settings import ImageFeature, StepSchedule, Strategy

ROOT = Path(__file__).parents[3]
BROKEN = sorted((ROOT / "tests" / "fixtures" / "broken").glob("*.yaml"))
DIGITS = ROOT / "configs" / "digits.yaml"


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.stem)
def test_broken_file_is_refused_at_the_keys_of_its_comments(path: Path) -> None:
    """A comment has the key of a problem, and its value where that matters."""
    expected = re.findall(r"^# at:(?: (.*))?$", path.read_text(), re.MULTILINE)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    head, *problems = str(caught.value).removeprefix(f"{path}: ").splitlines()
    problems = [problem.strip() for problem in problems] or [head]
    for place in expected:
        assert any(problem.startswith(place) for problem in problems), place
    if head.endswith((" problem", " problems")):
        keys = {re.match(r"[^ :]+", place)[0] for place in expected}
        assert {key[1] for p in problems if (key := re.match(r"([^ :]+): ", p))} == keys


def test_parameters_of_rules_are_parts_of_the_config() -> None:
    sections = get_type_hints(PipelineConfig)
    for rule in loading.RULES:
        for name, kind in get_type_hints(rule).items():
            part = getattr(PipelineConfig, name, None)
            if isinstance(part, property):
                assert kind == get_type_hints(part.fget)["return"], rule.__name__
            elif name != "return":
                assert kind == sections[name], rule.__name__


def test_every_rule_has_a_broken_file() -> None:
    assert {rule.__name__ for rule in loading.RULES} <= {path.stem for path in BROKEN}


def test_shipped_configs_are_valid(tmp_path: Path) -> None:
    for path in sorted((ROOT / "configs").glob("*.yaml")):
        config = load_config(path, [f"data.path={tmp_path}"] if path.stem == "mnist" else [])
        assert config.name == path.stem


def test_shipped_digits_config_has_its_values() -> None:
    config = load_config(DIGITS)
    assert config.features["image"] == ImageFeature(type="image", height=28, width=28, channels=1)
    assert config.train.strategy.kind is Strategy.MIRRORED
    assert config.evaluate.thresholds["accuracy"].min == 0.95
    assert config.data.splits == {"train": 8, "eval": 2}


def test_missing_package_is_refused_at_the_key_that_needs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load_config(DIGITS, ["optimize={prune: {}}"])
    monkeypatch.setitem(sys.modules, "tensorflow_model_optimization", None)
    with pytest.raises(ConfigError, match=r"optimize\.prune: the package tensorflow_model_opt"):
        load_config(DIGITS, ["optimize={prune: {}}"])


def test_overrides_set_nested_keys_and_make_sections() -> None:
    config = load_config(
        DIGITS,
        [
            "train.epochs=3",
            "push.directory=/models",
            "train.learning_rate={schedule: steps, values: [1e-3, 1e-4], boundaries: [2]}",
            "evaluate.slices=[label]",
        ],
    )
    assert config.train.epochs == 3
    assert config.push.directory == "/models"
    assert config.train.learning_rate == StepSchedule(
        schedule="steps", values=[1e-3, 1e-4], boundaries=[2]
    )
    assert config.evaluate.slices == [["label"]]
    # YAML reads a number without a dot as a text.
    assert load_config(DIGITS, ["train.learning_rate=1e-3"]).train.learning_rate == 1e-3


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.epochs", "expected key=value"),
        ("name.x=1", "`name` is 'digits', not a section"),
        ("train.epochs=[", "train.epochs: found '['"),
        ("train.epoch=3", "train.epoch: unknown key"),
    ],
)
def test_bad_override_is_refused_at_its_key(override: str, words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        load_config(DIGITS, [override])


@pytest.mark.parametrize(
    ("override", "shown"),
    [
        ("notify.webhook.url: https://hooks.example.com/hush", "--set notify.webhook.url...: "),
        ("=hush", "--set ...: expected key=value"),
    ],
)
def test_override_without_a_key_shows_no_secret(override: str, shown: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(DIGITS, [override])
    assert str(caught.value).startswith(shown)
    assert "hush" not in str(caught.value)


HOOK = "https://hooks.example.com/T00/hush"


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (
            "notify.webhook.url=hooks.example.com/T00/hush",
            "notify.webhook.url: found a str",
        ),
        (f"notify=['{HOOK}']", "notify: found a list"),
        (
            f"notify.webhook={{url: '{HOOK}', url_variable: A}}",
            "notify.webhook: ",
        ),
        ("notify.webhook={url_variable: hush-1}", "url_variable: found a str"),
        (
            "notify.email={server: 'smtp://u:hush@mail', sender: a@b.c, to: [a@b.c]}",
            "notify.email.server: found a str",
        ),
        ("metadata={url: 'mysql://u:hush@host/db'}", "metadata: found a dict"),
        ("kubeflow={secrets: {A: hush}}", "kubeflow.secrets.A: found a str"),
        ("kubeflow={environment: {A: [hush]}}", "environment.A: found a list"),
    ],
)
def test_values_that_may_be_secrets_are_not_shown(override: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(DIGITS, [override])
    assert words in str(caught.value)
    assert "hush" not in str(caught.value)


REST = """
name: own
data: {format: csv, path: builtin:taxi, label: big_tipper}
task: binary
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: {{ env }}", "line 1, column 8: not valid YAML"),
        ("train: {epochs: 1, epochs: 2}", "column 20: not valid YAML: the key `epochs`"),
        (
            "schema: !!timestamp 2026-13-45",
            "line 1, column 9: not valid YAML",
        ),
    ],
)
def test_invalid_yaml_is_refused_at_its_line(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(text + (REST if "name" not in text else ""))
    with pytest.raises(ConfigError, match=re.escape(words)):
        load_config(file)


def test_merged_sections_may_be_merged_again(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    # The section at the top, whose own keys win, is merged before it is read itself.
    file.write_text(f"{REST}<<: {{train: &t {{<<: {{epochs: 5, batch_size: 8}}, epochs: 6}}}}\n")
    config = load_config(file)
    assert (config.train.epochs, config.train.batch_size) == (6, 8)
    file.write_text(f"{REST}train: {{<<: &t {{<<: {{epochs: 5}}, epochs: 6}}, batch_size: 9}}\n")
    config = load_config(file)
    assert (config.train.epochs, config.train.batch_size) == (6, 9)


def test_override_of_an_anchored_section_leaves_its_alias_alone(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(
        f"{REST}evaluate:\n  thresholds: {{auc: &bounds {{min: 0.5}}, accuracy: *bounds}}\n"
    )
    thresholds = load_config(file, ["evaluate.thresholds.auc.min=0.7"]).evaluate.thresholds
    assert (thresholds["auc"].min, thresholds["accuracy"].min) == (0.7, 0.5)


@pytest.mark.parametrize(
    "code",
    [
        "from somewhere import *",
        "try:\n    from fast import build\nexcept ImportError:\n    from slow import build",
        "import os\nif os.name == 'nt':\n    def build(): ...\nelse:\n    build = print",
        "# -*- coding: latin-1 -*-\nname = '\xe9'\nasync def build(): ...",
    ],
)
def test_builder_may_come_by_any_statement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_code.py").write_bytes(code.encode("latin-1"))
    assert load_config(DIGITS, ["model.kind=own_code.build"]).model.is_custom


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("build: int", "own_code.build", "defines no `build`"),
        ("def build(:", "own_code.build", "is not valid Python"),
        ("", ".build", "model.kind: found '.build'"),
    ],
)
def test_missing_builder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, kind: str, words: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_code.py").write_text(code)
    with pytest.raises(ConfigError, match=re.escape(words)):
        load_config(DIGITS, [f"model.kind={kind}"])


def test_missing_file_suggests_a_sibling() -> None:
    with pytest.raises(ConfigError, match=r"did you mean `.*configs/digits\.yaml`"):
        load_config(ROOT / "configs" / "digit.yaml")


def test_bad_config_ends_a_command_with_2_and_its_keys(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    wrong = ["--set", "train.epochs=none", "--set", "task=x"]
    monkeypatch.setattr(sys, "argv", ["local_runner.py", "run", str(DIGITS), *wrong])
    with pytest.raises(SystemExit) as ended:
        local_runner.main()
    assert ended.value.code == 2
    shown = capfd.readouterr().err
    assert "configs/digits.yaml: 2 problems" in shown
    assert "train.epochs: found 'none'" in shown
    assert "task: found 'x'" in shown
    assert "Traceback" not in shown


@pytest.mark.slow
def test_bad_config_is_refused_before_tensorflow_is_imported() -> None:
    script = (
        "import sys, local_runner\n"
        "sys.argv = ['local_runner.py', 'run', '--set', 'task=x']\n"
        "try:\n    local_runner.main()\n"
        "except SystemExit as end:\n"
        "    heavy = {'tensorflow', 'tfx', 'apache_beam'} & set(sys.modules)\n"
        "    print(end.code, heavy)\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2 set()"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("target: price", "`data.label`"),
        ("train: {lr: 0.1}", "`train.learning_rate`"),
        ("model: {kind: xgboost}", "`trees`"),
        ("train: {strategy: ddp}", "`mirrored`"),
    ],
)
def test_names_of_other_tools_have_a_suggestion(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "rows.csv").write_text("price\n1\n")
    file = tmp_path / "config.yaml"
    data = f"{{format: csv, path: {tmp_path}/rows.csv, label: price}}"
    file.write_text(f"name: cars\ndata: {data}\ntask: binary\n{line}\n")
    with pytest.raises(ConfigError) as error:
        load_config(file)
    assert message in str(error.value)


def test_text_that_looks_like_a_number_is_written_as_text() -> None:
    texts = ["1e3", "2026-01-05", "12:30", "3", "yes", "a", "1.5"]
    assert loading._parse(yaml.dump(texts, Dumper=ConfigDumper)) == texts
    assert loading._parse("[1e3, 2026-01-05, 12:30]") == [1000, "2026-01-05", "12:30"]
