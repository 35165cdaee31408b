"""Options of the Trainer outside of TFX's cache key are passed by the environment."""

from __future__ import annotations

import pytest

from components.trainer.options import OPTIONS_VARIABLE, TrainerOptions
from trainer_module.errors import ConfigError


def test_options_travel_by_the_environment() -> None:
    options = TrainerOptions(retries=1, start_timeout=2.5, backup_steps=100)
    assert TrainerOptions.from_environment(options.to_environment()) == options


def test_defaults() -> None:
    options = TrainerOptions.from_environment({})
    assert (options.launcher, options.retries, options.start_timeout) == ("local", 3, 300)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"retries": -1}', "retries"),
        ("nothing", "nothing"),
    ],
)
def test_invalid_options_are_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TrainerOptions.from_environment({OPTIONS_VARIABLE: text})
    assert str(caught.value).startswith(f"{OPTIONS_VARIABLE}: {words}")
