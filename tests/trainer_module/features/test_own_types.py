"""Feature types of the user's: what is wrong with one is said with the feature and the module."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf
import yaml

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


def test_one_that_is_right() -> None:
    assert transform(type="own_types.Money", rate=1000)["price"].numpy().tolist() == [
        [0],
        [1],
        [20],
    ]


def test_the_one_of_the_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (TAXI.parents[1] / "docs" / "features.md").read_text()
    (tmp_path / "my_types.py").write_text(page.split("```python\n")[1].split("```")[0])
    monkeypatch.syspath_prepend(tmp_path)
    config = yaml.safe_load(page.split("```yaml\n")[1].split("```")[0])
    settings = TrainerSettings.model_validate(
        {"label": "y", "task": "regression", "features": {"deposit": config["features"]["deposit"]}}
    )
    with tf.Graph().as_default():
        inputs = {"deposit": tf.constant([["$1,200.50"]]), "y": tf.constant([[1.0]])}
        output = preprocessing_fn(inputs, settings.to_custom_config())["deposit"]
    assert (output.dtype, output.shape) == (tf.float32, (1, 1))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Raising", r"KeyError: 'rates.csv' \(.*own_types.py, line \d+\)"),
        (
            "Worded",
            "transform returned strings as 'price'; expected: float32, or int64 indices in a voc",
        ),
        ("Listed", "transform returned a list, not a dictionary of tensors by name"),
        (
            "Flat",
            r"transform returned 'price' with the shape \(3,\); expected: \[rows, n\] or more",
        ),
        (
            "Elsewhere",
            "transform returned 'y', the name of another column; expected: an unused name",
        ),
        ("Nameless", r"transform returned 'rate'; expected: an unused name that begins"),
        ("Shrinking", "transform returned 'price' with a different number of rows than its input"),
    ],
)  # fmt: skip
def test_one_that_is_not(name: str, message: str) -> None:
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
        ({"type": "own_types.Money", "rat": 2}, "key rat: Extra inputs are not permitted"),
        ({"type": "own_types.Mony"}, "module 'own_types' has no function 'Mony'"),
        (
            {"type": "own_types.NotAType"},
            "the type must be a subclass of trainer_module.features.base",
        ),
        ({"type": "no_types.Money"}, "cannot import 'no_types'"),
    ],
)
def test_one_that_cannot_be_had(settings: dict[str, object], message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        transform(**settings)


def test_the_config_finds_it_without_running_it(
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
