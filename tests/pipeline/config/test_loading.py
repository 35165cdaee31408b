"""Broken config files: every problem is named at once, with what would be right."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest
import yaml

from pipeline.config import loading
from pipeline.config.issues import Rule
from pipeline.config.loading import load_config
from pipeline.config.settings import PipelineConfig
from pipeline.config.yaml_core import ConfigDumper
from trainer_module.errors import ConfigError
from trainer_module.extras import install_command
from trainer_module.settings import ImageFeature, StepSchedule, Strategy

ROOT = Path(__file__).parents[3]
BROKEN = sorted((ROOT / "tests" / "fixtures" / "broken").glob("*.yaml"))
DIGITS = ROOT / "configs" / "digits.yaml"


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.stem)
def test_broken_file_says_what_its_comments_expect(path: Path) -> None:
    expected = re.findall(r"^# says: (.*)$", path.read_text(), re.MULTILINE)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert expected
    for words in expected:
        assert words in str(caught.value)


@pytest.mark.parametrize("rule", loading.RULES, ids=lambda rule: rule.__name__)
def test_rule_is_handed_parts_of_the_config_of_the_types_that_it_names(rule: Rule) -> None:
    sections = get_type_hints(PipelineConfig)
    for name, kind in get_type_hints(rule).items():
        if name != "return":
            part = getattr(PipelineConfig, name, None)
            is_derived = isinstance(part, property)
            assert kind == (get_type_hints(part.fget)["return"] if is_derived else sections[name])


def test_every_rule_has_a_broken_file() -> None:
    assert {rule.__name__ for rule in loading.RULES} <= {path.stem for path in BROKEN}


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda p: p.stem)
def test_shipped_config_is_valid(path: Path, tmp_path: Path) -> None:
    config = load_config(path, [f"data.path={tmp_path}"] if path.stem == "mnist" else [])
    assert config.name == path.stem


def test_digits_reads_as_the_contract_says() -> None:
    config = load_config(DIGITS)
    assert config.features["image"] == ImageFeature(type="image", height=28, width=28, channels=1)
    assert config.train.strategy.kind is Strategy.MIRRORED
    assert config.evaluate.thresholds["accuracy"].min == 0.95
    assert config.data.splits == {"train": 8, "eval": 2}


@pytest.mark.parametrize(
    ("section", "package", "key"),
    [
        ("{prune: {}}", "tensorflow_model_optimization", "prune"),
        ("{variants: [int8]}", "ai_edge_litert", "variants"),
        ("{variants: [onnx]}", "tf2onnx", "variants"),
    ],
)
def test_a_missing_package_is_told_before_anything_runs(
    section: str, package: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_config(DIGITS, [f"optimize={section}"])
    monkeypatch.setitem(sys.modules, package, None)
    expected = (
        f"optimize.{key}: the package {package} cannot be imported; run "
        f"`{install_command('optimize')}`, or remove this key"
    )
    with pytest.raises(ConfigError, match=re.escape(expected)):
        load_config(DIGITS, [f"optimize={section}"])


def test_the_trainer_is_not_told_of_variants() -> None:
    pruned = ["optimize={prune: {sparsity: 0.8}, variants: [int8]}"]
    told = load_config(DIGITS, pruned).trainer_settings
    other = load_config(DIGITS, [*pruned, "optimize.variants=[onnx]"]).trainer_settings
    assert told.optimize.prune is not None
    assert told.optimize.prune.sparsity == 0.8
    assert told.to_custom_config() == other.to_custom_config()


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
        ("train.epochs", "expected key=value, such as train.epochs=3"),
        ("name.x=1", "`name` is 'digits', not a section"),
        ("train.epochs=[", "train.epochs: found '['; expected a valid integer"),
        ("train.epoch=3", "train.epoch: unknown key; did you mean `epochs`?"),
    ],
)
def test_bad_override_is_explained(override: str, words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        load_config(DIGITS, [override])


@pytest.mark.parametrize(
    ("override", "shown"),
    [
        ("notify.webhook.url: https://hooks.example.com/hush", "--set notify.webhook.url...: "),
        ("=hush", "--set ...: expected key=value"),
    ],
)
def test_override_without_a_key_does_not_repeat_what_may_be_a_secret(
    override: str, shown: str
) -> None:
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
            "notify.webhook.url: found a str that is not shown here; a webhook's URL begins with",
        ),
        (f"notify.webhook={HOOK}", "notify.webhook: found a str that is not shown here; expected"),
        (f"notify=['{HOOK}']", "notify: found a list that is not shown here; expected"),
        (f"notify.webhook.url=['{HOOK}']", "notify.webhook.url: found a list that is not"),
        (
            f"notify.webhook={{url: '{HOOK}', url_variable: A}}",
            "webhook: expected exactly one of url",
        ),
        ("notify.webhook={secret_variable: A}", "notify.webhook: expected exactly one of url"),
        ("notify.webhook={url_variable: hush-1}", "url_variable: found a str that is not shown"),
        (
            "notify.email={server: 'smtp://u:hush@mail', sender: a@b.c, to: [a@b.c]}",
            "notify.email.server: found a str that is not shown here; expected `host` or `host:",
        ),
        (
            "notify.email={server: m, sender: a, to: hush, password_variable: 'hush!'}",
            "password_variable: found a str that is not shown here; expected the name of an env",
        ),
        ("metadata={url: 'mysql://u:hush@host/db'}", "metadata: found a dict that is not shown"),
        (
            "metadata=http://u:hush@host/db",
            ("metadata: found 'http://u:***@host/db' with the unsupported scheme"),
        ),
        ("kubeflow={secrets: {A: hush}}", "kubeflow.secrets.A: found a str that is not shown here"),
        ("kubeflow={environment: {A: [hush]}}", "environment.A: found a list that is not shown"),
    ],
)
def test_values_that_may_be_secrets_are_not_repeated(override: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(DIGITS, [override])
    assert words in str(caught.value)
    assert "hush" not in str(caught.value)


def test_override_below_a_secret_does_not_repeat_it() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(DIGITS, [f"notify.webhook.url={HOOK}", "notify.webhook.url.x=1"])
    assert "`url` is a str that is not shown here, not a section" in str(caught.value)


def test_mail_servers_are_hosts() -> None:
    for server in ("mail", "mail.example.com:587", "'[::1]:25'", "127.0.0.1"):
        config = load_config(DIGITS, [f"notify.email={{server: {server}, sender: a, to: [a]}}"])
        assert config.notify.email is not None


REST = """
name: own
data: {format: csv, path: builtin:taxi, label: big_tipper}
task: binary
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: {{ env }}", "line 1, column 8: not valid YAML: a key has to be plain text; quote"),
        ("? [a, b]\n: c", "line 1, column 3: not valid YAML: a key has to be plain text"),
        ("train: {epochs: 1, epochs: 2}", "column 20: not valid YAML: the key `epochs` appears"),
        ("x: {<<: {a: 1}, a: 2, a: 3}", "the key `a` appears twice"),
        (
            "schema: !!timestamp 2026-13-45",
            "line 1, column 9: not valid YAML: month must be in 1..12; if",
        ),
    ],
)
def test_yaml_that_is_no_config_is_explained(tmp_path: Path, text: str, words: str) -> None:
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
        "from typing import Any\nbuild: Any = print",
        "build, other = print, repr",
        "with open('x') as f:\n    build = f.read",
        "def __getattr__(name): ...",
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
        ("def other():\n    build = 1", "own_code.build", "defines no `build`"),
        ("import build.it as other", "own_code.build", "defines no `build`"),
        ("def build(:", "own_code.build", "is not valid Python: try `python "),
        ("", ".build", "model.kind: found '.build'; expected module.function"),
        ("", "own_code..build", "found 'own_code..build'; expected module.function"),
    ],
)
def test_builder_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, kind: str, words: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_code.py").write_text(code)
    with pytest.raises(ConfigError, match=re.escape(words)):
        load_config(DIGITS, [f"model.kind={kind}"])


@pytest.mark.parametrize("key", ["split_by", "order_by"])
def test_folds_go_with_what_keeps_rows_apart(key: str) -> None:
    """Folds are dealt by whole groups, and in the order of time."""
    changed = [f"data.{key}=trip_start_timestamp", "evaluate.folds=3"]
    config = load_config(ROOT / "configs" / "taxi.yaml", changed)
    assert config.evaluate.folds == 3


def test_missing_file_suggests_a_sibling() -> None:
    with pytest.raises(ConfigError, match=r"did you mean `.*configs/digits\.yaml`"):
        load_config(ROOT / "configs" / "digit.yaml")


def test_bad_config_exits_2_without_importing_tensorflow() -> None:
    script = (
        "import sys, local_runner\n"
        "sys.argv = ['local_runner.py', 'run', '--set', 'train.epochs=none', '--set', 'task=x']\n"
        "try:\n    local_runner.main()\n"
        "except SystemExit as end:\n"
        "    heavy = {'tensorflow', 'tfx', 'apache_beam'} & set(sys.modules)\n"
        "    print(end.code, heavy)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "2 set()"
    assert "configs/digits.yaml: 2 problems" in done.stderr
    assert "train.epochs: found 'none'; expected a valid integer" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("target: price", "target: unknown key; did you mean `data.label`?"),
        ("epochs: 3", "epochs: unknown key; did you mean `train.epochs`?"),
        ("train: {lr: 0.1}", "train.lr: unknown key; did you mean `train.learning_rate`?"),
        ("train: {epoch: 3}", "train.epoch: unknown key; did you mean `epochs`?"),
        ("schedule: {every: 1d}", "schedule.every: unknown key; did you mean `schedule.cron`?"),
        ("model: {kind: xgboost}", "model.kind: found 'xgboost'; did you mean `trees`?"),
        ("train: {strategy: ddp}", "did you mean `mirrored`?"),
        ("evaluate: {metrics: [roc_auc]}", "did you mean `auc`?"),
        ("features: [brand]", "such as features: {brand: {type: categorical}}"),
        ("evaluate: {thresholds: {auc: 0.8}}", "expected auc: {min: 0.8}, or {max: 0.8}"),
    ],
)
def test_names_of_other_tools_are_understood(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "rows.csv").write_text("price\n1\n")
    file = tmp_path / "config.yaml"
    data = f"{{format: csv, path: {tmp_path}/rows.csv, label: price}}"
    file.write_text(f"name: cars\ndata: {data}\ntask: binary\n{line}\n")
    with pytest.raises(ConfigError) as error:
        load_config(file)
    assert message in str(error.value)


def test_a_name_stands_for_the_kind_of_a_model(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("price\n1\n")
    file = tmp_path / "config.yaml"
    data = f"{{format: csv, path: {tmp_path}/rows.csv, label: price}}"
    file.write_text(f"name: cars\ndata: {data}\ntask: binary\nmodel: trees\n")
    assert load_config(file).model.kind == "trees"


def test_text_that_looks_like_a_number_stays_text_when_it_is_written() -> None:
    texts = ["1e3", "2026-01-05", "12:30", "3", "yes", "a", "1.5"]
    assert loading._parse(yaml.dump(texts, Dumper=ConfigDumper)) == texts
    assert loading._parse("[1e3, 2026-01-05, 12:30]") == [1000, "2026-01-05", "12:30"]


def test_json_that_escapes_an_emoji_is_read_as_written(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    label = json.dumps("\N{TAXI}")
    config = {"name": "taxi", "data": {"format": "csv", "path": "\N{TAXI}.csv"}, "task": "binary"}
    file.write_text(json.dumps(config))
    loaded = load_config(file, [f"data.label={label}"], lambda _: ())
    assert (loaded.data.path, loaded.data.label) == ("\N{TAXI}.csv", "\N{TAXI}")
