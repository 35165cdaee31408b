"""A new model, feature type or strategy is a module and one line in its registry.

Each test registers one that nothing else knows of, and takes it down the road of a real one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
import tensorflow as tf
import tf_keras

from components.processes.supervisor import Policy
from components.trainer.workers import Training, make_workers, restart_policy
from pipeline.config.json_schema import config_schema
from pipeline.config.loading import load_config
from pipeline.config.reference import config_reference
from pipeline.config.sections.model import model_supports_task_and_features
from pipeline.config.settings import PipelineConfig
from pipeline.layout import Layout
from pipeline.run_context import resolve_run
from tests.support.trainer_data import Transformed, run_transform
from trainer_module.errors import ConfigError
from trainer_module.families.supervised.tasks.numbers import RegressionTask
from trainer_module.features import FEATURES
from trainer_module.features.base import BaseFeature
from trainer_module.features.raw_columns import AnyTensor, dense_strings
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem
from trainer_module.runtime import WorkerContext, choose_strategy
from trainer_module.settings import ModelSettings, TrainerSettings, TrainSettings
from trainer_module.settings.model import LEARNERS, ZOO, ModelSpec
from trainer_module.strategies import STRATEGIES, build_strategy
from trainer_module.strategies.base import BaseStrategy, Processes
from trainer_module.trainer import run_fn

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TAXI = ROOT / "configs" / "taxi.yaml"


def load(*overrides: str) -> PipelineConfig:
    return load_config(TAXI, overrides)


def build_linear(problem: Problem, settings: ModelSettings) -> tf_keras.Model:
    """A linear model of the numbers, which reads the key `filters` for whatever reason."""
    inputs = problem.make_inputs()
    numbers = [inputs[feature.name] for feature in problem.of_kind("numeric")]
    hidden = tf_keras.layers.Concatenate()(numbers)
    for filters in settings.filters:
        hidden = tf_keras.layers.Dense(filters, name=f"filters_{filters}")(hidden)
    return tf_keras.Model(inputs, problem.make_output_layer()(hidden), name="linear")


@pytest.fixture
def linear(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ModelSpec(f"{__name__}.build_linear", needs="numeric", reads=("filters",))
    monkeypatch.setitem(ZOO, "linear", spec)


@pytest.mark.usefixtures("linear")
def test_config_takes_a_model() -> None:
    feature = "features={trip_miles: {type: numeric}}"
    assert load("model.kind=linear", feature).model.kind == "linear"
    with pytest.raises(ConfigError, match=r"found 'liner'; did you mean `linear`\?"):
        load("model.kind=liner")
    words = (
        "found 'linear', but no feature is a numeric; add a numeric feature, or use ensemble, mlp"
    )
    with pytest.raises(ConfigError, match=words):
        load("model.kind=linear", "features={}")


@pytest.mark.usefixtures("linear")
def test_the_reference_names_a_model_and_what_it_reads() -> None:
    keys = json.loads(config_schema())["$defs"]["ModelSettings"]["properties"]
    names = keys["kind"]["anyOf"][0]["enum"]
    assert "linear" in names
    assert {*ZOO, *LEARNERS} < {*names}
    assert "| cnn, convnet, text_cnn, linear: the filters of each" in config_reference()


@pytest.mark.usefixtures("linear")
def test_a_model_is_built_trained_and_exported(trips: Transformed, tmp_path: Path) -> None:
    model: dict[str, Any] = {"kind": "linear", "filters": [3]}
    fn_args = trips.fn_args(tmp_path, model=model, train={"epochs": 1})
    run_fn(fn_args)
    record = json.loads((tmp_path / "model_run" / "training.json").read_text())
    assert record["model"] == "linear"
    assert record["steps"] > 0
    served = tf_keras.models.load_model(fn_args.serving_model_dir)
    assert served.get_layer("filters_3").units == 3


def test_a_model_that_is_not_registered_is_refused() -> None:
    known = f"found 'linear'; expected one of {', '.join(sorted(ZOO))}"
    with pytest.raises(ConfigError, match=known):
        load("model.kind=linear")


class BoundedTask(RegressionTask):
    """A number with bounds."""

    bounds: list[float] = []


def test_a_task_with_options_that_trees_do_not_know_is_refused() -> None:
    config = load("model.kind=trees", "train={}")
    task = BoundedTask(kind="regression", bounds=[0.1, 0.9])
    changed = config.model_copy(update={"target": task})
    (issue,) = changed.find_issues([model_supports_task_and_features])
    assert issue.path == "task"
    assert (
        "found regression with options, but `model: trees` supports only binary, multiclass and"
    ) in issue.message


class PlacedStrategy(BaseStrategy):
    """On a CPU that is asked for by number."""

    kind: Literal["placed"]
    cpu: int = 0
    """Which one."""

    def check(self) -> None:
        """Refuses more CPUs than there are."""
        if self.cpu > 1:
            raise ConfigError(f"there is no CPU {self.cpu}")

    def build(self) -> tf.distribute.Strategy:
        """On that CPU."""
        return tf.distribute.OneDeviceStrategy(f"/cpu:{self.cpu}")


class ServedStrategy(BaseStrategy):
    """Of a chief and servers."""

    kind: Literal["served"]
    processes: ClassVar[Processes] = Processes.SERVERS


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STRATEGIES, "placed", f"{__name__}.PlacedStrategy")


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STRATEGIES, "served", f"{__name__}.ServedStrategy")


@pytest.mark.usefixtures("placed")
def test_config_takes_a_strategy_by_name_or_with_options() -> None:
    assert load("train.strategy=placed").train.strategy == PlacedStrategy(kind="placed")
    config = load("train.strategy={kind: placed, cpu: 1}")
    assert config.train.strategy == PlacedStrategy(kind="placed", cpu=1)
    carried = config.trainer_settings.to_custom_config()["scopeline"]["train"]["strategy"]
    assert carried == {"kind": "placed", "cpu": 1}
    with pytest.raises(ConfigError, match=r"found 'plaed'; expected .*did you mean `placed`\?"):
        load("train.strategy=plaed")
    with pytest.raises(ConfigError, match=r"strategy.cpus: unknown key; did you mean `cpu`\?"):
        load("train.strategy={kind: placed, cpus: 1}")
    with pytest.raises(ConfigError, match="strategy placed uses one process"):
        load("train.strategy=placed", "train.cluster={workers: 2}")


@pytest.mark.usefixtures("placed")
def test_the_reference_shows_a_strategy() -> None:
    definitions = json.loads(config_schema())["$defs"]
    assert definitions["Strategy"]["enum"] == list(STRATEGIES)
    assert (
        definitions["PlacedStrategy"]["properties"]["cpu"]["description"]
        == "Which one.\n\nDefault: `0`"
    )
    assert "## PlacedStrategy\n\nOn a CPU that is asked for by number." in config_reference()


@pytest.mark.usefixtures("placed")
def test_a_strategy_is_checked_built_and_trained_under(trips: Transformed, tmp_path: Path) -> None:
    settings = TrainSettings.model_validate({"strategy": {"kind": "placed", "cpu": 1}})
    strategy = choose_strategy(settings, None).strategy
    strategy.check()
    with pytest.raises(ConfigError, match="there is no CPU 2"):
        PlacedStrategy(kind="placed", cpu=2).check()
    built = build_strategy(strategy)
    assert built.extended.worker_devices[0].endswith("CPU:1")
    assert build_strategy(strategy) is built
    chosen = {"epochs": 1, "strategy": {"kind": "placed", "cpu": 1}}
    run_fn(trips.fn_args(tmp_path, train=chosen))
    record = json.loads((tmp_path / "model_run" / "training.json").read_text())
    assert record["strategy"] == "placed"


@pytest.mark.usefixtures("served", "placed")
def test_the_processes_of_a_strategy_follow(trips: Transformed, tmp_path: Path) -> None:
    training = Training("my.run_fn", {}, trips.settings, WorkerContext(), str(tmp_path))
    assert [spec.place.name for spec in make_workers(training, "placed", None)] == ["the trainer"]
    names = [spec.place.name for spec in make_workers(training, "served", None)]
    assert names == ["the chief", "worker 0", "worker 1", "parameter server 0"]
    assert restart_policy("served") is Policy.COORDINATOR
    assert restart_policy("placed") is Policy.GANG
    load("train.strategy=served", "train.cluster={workers: 2}")
    with pytest.raises(ConfigError, match="writes backups only at the end of each epoch"):
        load("train.strategy=served", "train.backup_steps=5")
    assert "`parameter_server` and `served` train." in config_reference()


class LettersFeature(BaseFeature):
    """Text: how often some letters are in it."""

    type: Literal["letters"]
    may_mix: ClassVar[bool] = True
    letters: str = "ab"
    """Those that are counted."""

    @classmethod
    def transform(
        cls, columns: Mapping[str, AnyTensor], features: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """[batch, letters] float32."""

        def count(text: tf.Tensor, letter: str) -> tf.Tensor:
            others = tf.strings.regex_replace(text, f"[^{letter}]", "")
            return tf.cast(tf.strings.length(others), tf.float32)

        texts = {name: dense_strings(column) for name, column in columns.items()}
        return {
            name: tf.concat([count(text, letter) for letter in features[name].letters], 1)
            for name, text in texts.items()
        }

    @classmethod
    def matches(cls, dtype: str, shape: tuple[int, ...], indices: int) -> bool:
        """A vector, as a numeric feature may be too."""
        return dtype == cls.dtype and len(shape) == 1 and not indices

    @classmethod
    def encode(
        cls, feature: TransformedFeature, values: tf.Tensor, embedding_size: int
    ) -> tf.Tensor:
        """A projection."""
        return tf_keras.layers.Dense(embedding_size, name=f"{feature.name}_letters")(values)


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FEATURES, "letters", f"{__name__}.LettersFeature")


@pytest.mark.usefixtures("letters")
def test_config_takes_a_feature_type() -> None:
    config = load("features={company: {type: letters, letters: xyz}}")
    assert config.features["company"] == LettersFeature(type="letters", letters="xyz")
    carried = config.trainer_settings.to_custom_config()["scopeline"]["features"]
    assert carried == {"company": {"type": "letters", "letters": "xyz"}}
    with pytest.raises(ConfigError, match=r"expected .*, letters; did you mean `letters`\?"):
        load("features={company: {type: leters}}")
    with pytest.raises(ConfigError, match=r"company.leters: unknown key; did you mean `letters`"):
        load("features={company: {type: letters, leters: xyz}}")


@pytest.mark.usefixtures("letters")
def test_the_reference_shows_a_feature_type() -> None:
    page = config_reference()
    assert "[IgnoredFeature](#ignoredfeature) or [LettersFeature](#lettersfeature) or [Own" in page
    assert '| `letters` | string | `"ab"` | Those that are counted. |' in page


@pytest.mark.usefixtures("letters")
def test_a_column_of_a_type_may_mix_numbers_and_text(tmp_path: Path) -> None:
    config = load("features={company: {type: letters}, fare: {type: numeric}}")
    settings = resolve_run(config, Layout.of(config.name, config.push, tmp_path)).ingestion.settings
    assert settings.mixed_columns == ("company",)


@pytest.mark.usefixtures("letters")
def test_a_feature_is_transformed_trained_on_and_served(tmp_path: Path) -> None:
    rows = [{"word": w, "size": float(len(w)), "y": int("b" in w)} for w in ("aab", "a", "b")] * 8
    settings = TrainerSettings.model_validate(
        {
            "label": "y",
            "task": "binary",
            "features": {"word": {"type": "letters", "letters": "ba"}},
            "train": {"epochs": 1, "batch_size": 8},
        }
    )
    words = run_transform(tmp_path / "data", rows, rows, settings)
    assert words.transform(rows[:2])["word"].tolist() == [[1, 2], [0, 1]]
    kinds = {feature.name: feature.kind for feature in words.problem.features}
    assert kinds == {"word": "letters", "size": "numeric"}
    fn_args = words.fn_args(tmp_path)
    run_fn(fn_args)
    model = tf_keras.models.load_model(fn_args.serving_model_dir)
    assert model.get_layer("word_letters").units == ModelSettings().embedding_size
    serve = tf.saved_model.load(fn_args.serving_model_dir).signatures["serving_raw"]
    served = serve(word=tf.constant([["ab"]]), size=tf.constant([[2.0]]))
    assert served["scores"].shape == (1, 2)


def test_no_registered_section_imports_tensorflow() -> None:
    script = """
import sys
from pipeline.config.json_schema import config_schema
from trainer_module.features import FEATURES, feature_class
from trainer_module.strategies import STRATEGIES, strategy_class
from trainer_module.settings.tasks import TASKS, task_class
for name in TASKS: task_class(name)
for name in STRATEGIES: strategy_class(name)
for name in FEATURES: feature_class(name)
config_schema()
print({"tensorflow", "tfx", "apache_beam"} & set(sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"
