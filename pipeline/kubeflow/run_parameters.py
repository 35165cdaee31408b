"""Checks the parameters of a run, and applies them to the config.

Parameters are checked when a run is submitted, and again when the run begins: Kubeflow's own pages
start runs as well, and Kubeflow's API accepts 2.5 for an integer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pydantic import ValidationError

from pipeline.config.issues import from_validation, near_match
from pipeline.config.sections.data import has_spans, span_kind
from pipeline.config.settings import PipelineConfig
from pipeline.kubeflow.compiled import Parameters, ParameterValue
from pipeline.kubeflow.kubeflow_rules import check_for_kubeflow
from trainer_module.errors import ConfigError, enumerate_names
from trainer_module.settings import AUTO
from trainer_module.strategies import STRATEGIES

AUTO_EPOCHS = 0
"""The number that stands for `auto`, as Kubeflow's parameters have one type."""


def default_parameters(config: PipelineConfig) -> Parameters:
    """Returns the parameters of a run with their defaults."""
    epochs = AUTO_EPOCHS if config.train.epochs == AUTO else config.train.epochs
    return {"epochs": epochs, "strategy": config.train.strategy.kind, "span": ""}


def parse_parameters(config: PipelineConfig, arguments: Sequence[str]) -> Parameters:
    """Returns the checked values of a run's parameters.

    Args:
      arguments: `name=value` strings.

    Returns:
      The values in the arguments; all other parameters keep their defaults.

    Raises:
      ConfigError: there is no such parameter, or its value is invalid.
    """
    defaults, values = default_parameters(config), Parameters()
    for text in arguments:
        name, separator, value = text.partition("=")
        if not separator:
            raise ConfigError(f"--parameter {text}: give name=value, such as epochs=3")
        if name not in defaults:
            hint = near_match(name, defaults)
            raise ConfigError(f"--parameter {text}: there is no parameter `{name}`; {hint}")
        if name in values:
            raise ConfigError(f"--parameter {text}: `{name}` is given twice")
        try:
            values[name] = read_parameter(config, name, value)
        except ConfigError as error:
            raise ConfigError(f"--parameter {text}: {error}") from None
    for problem in check_for_kubeflow(apply_parameters(config, values)):
        raise ConfigError(f"--parameter {' and '.join(arguments)}: {problem}")
    return values


def read_parameter(config: PipelineConfig, name: str, text: str) -> ParameterValue:
    """Returns the value of a parameter.

    Args:
      name: a key of `default_parameters`.
      text: the value as text.

    Raises:
      ConfigError: the value is invalid; the message states the expected values.
    """
    return _READERS[name](config, text)


def apply_parameters(config: PipelineConfig, parameters: Parameters) -> PipelineConfig:
    """Returns the config with a run's parameters, except the span, which is no config key.

    Raises:
      ConfigError: the values do not fit the rest of the config.
    """
    defaults = default_parameters(config)
    # Defaults are not applied: the name of the config's strategy would remove its options.
    changes = {
        name: value
        for name, value in parameters.items()
        if name != "span" and value != defaults[name]
    }
    if changes.get("epochs") == AUTO_EPOCHS:
        changes["epochs"] = AUTO
    values = config.model_dump(mode="json", by_alias=True, exclude_unset=True)
    values["train"] = values.get("train", {}) | changes
    try:
        return PipelineConfig.model_validate(values)
    except ValidationError as error:
        problem = from_validation(error, values, PipelineConfig)[0]
        changed = enumerate_names([f"{name}={value}" for name, value in changes.items()], "and")
        raise ConfigError(f"the config cannot have {changed}: {problem}") from None


def _read_epochs(config: PipelineConfig, text: str) -> int:
    if text == AUTO:
        return AUTO_EPOCHS
    expected = f"expected a whole number, or {AUTO_EPOCHS} for a number that depends on the data"
    try:
        epochs = int(text)
    except ValueError:
        raise ConfigError(expected) from None
    if epochs < AUTO_EPOCHS:
        raise ConfigError(expected)
    return epochs


def _read_strategy(config: PipelineConfig, text: str) -> str:
    if text not in STRATEGIES:
        raise ConfigError(f"there is no strategy `{text}`; {near_match(text, STRATEGIES)}")
    return text


def _read_span(config: PipelineConfig, text: str) -> str:
    if not text:
        return text
    if not has_spans(config.data):
        raise ConfigError("data.path has no spans; leave this parameter empty")
    kind = span_kind(config.data)
    try:
        kind.parse(text)
    except ValueError:
        raise ConfigError(f"each span at data.path is {kind.value}") from None
    return text


_READERS: Mapping[str, Callable[[PipelineConfig, str], ParameterValue]] = {
    "epochs": _read_epochs,
    "strategy": _read_strategy,
    "span": _read_span,
}
