"""Own feature types: used, or refused with the names of the feature and the module."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from components.user_errors import find_user_error
from pipeline.config.loading import load_config
from pipeline.config.user_code import own_sources
from trainer_module.errors import ConfigError, TrainingError
from trainer_module.preprocessing import preprocessing_fn
from trainer_module.settings import TrainerSettings

TAXI = Path(__file__).parents[3] / "configs" / "taxi.yaml"


def transform(**settings: object) -> dict[str, tf.Tensor]:
    """Three prices, in the graph that Transform would make."""

    @tf.function(autograph=False)  # As TFT traces it.
    def run(price: tf.Tensor) -> dict[str, tf.Tensor]:
        label = tf.ones_like(price, tf.float32)
        custom_config = TrainerSettings.model_validate(
            {"label": "y", "task": "regression", "features": {"price": settings}}
        ).to_custom_config()
        return preprocessing_fn({"price": price, "y": label}, custom_config)

    return run(tf.constant([["$0"], ["$1"], ["$20"]]))


def test_own_type_transforms_its_column() -> None:
    assert transform(type="own_types.Money", rate=1000)["price"].numpy().tolist() == [
        [0],
        [1],
        [20],
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [("Raising", r"KeyError: 'rates.csv' \(.*own_types.py, line \d+\)"), (
            "Worded",
            "returned strings as 'price'",
        ), (
            "Elsewhere",
            "returned 'y'",
        )],
)  # fmt: skip
def test_failing_own_type_is_named_with_its_feature(name: str, message: str) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - what TensorFlow makes of it
        transform(type=f"own_types.{name}")
    error = find_user_error(caught.value)
    assert type(error) is TrainingError
    assert str(error).startswith(f"feature 'price' of type 'own_types.{name}': ")
    with pytest.raises(TrainingError, match=message):
        raise error


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"type": "own_types.Money", "rat": 2}, "key rat"),
        (
            {"type": "own_types.NotAType"},
            "trainer_module.features.base",
        ),
    ],
)
def test_unusable_own_type_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        transform(**settings)


def test_config_finds_own_type_without_running_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "coins.py").write_text("import purse\nclass Coin: ...\nraise SystemExit\n")
    (tmp_path / "purse.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    config = load_config(TAXI, ["features={fare: {type: coins.Coin, rate: 2}}"])
    assert [source.name for source in own_sources(config.own_code.values())] == [
        "coins.py",
        "purse.py",
    ]
    assert config.features["fare"].model_dump() == {"type": "coins.Coin", "rate": 2}
    with pytest.raises(ConfigError, match=r"features.fare.type: found 'coins.Con'; .* no `Con`"):
        load_config(TAXI, ["features={fare: {type: coins.Con}}"])
    with pytest.raises(
        ConfigError, match=r"found {'type': 'dat'}; expected one of .*did you mean `date`\?"
    ):
        load_config(TAXI, ["features={fare: {type: dat}}"])
