"""The parameters of a run: their valid values, and the config with them.

They are checked when a run is submitted, and again when it begins: Kubeflow's own pages start runs
as well, and its API accepts 2.5 for an integer.
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


def parse_parameters(config: PipelineConfig, given: Sequence[str]) -> Parameters:
    """Returns the checked values of a run's parameters.

    Args:
      config: the checked config of the pipeline.
      given: `name=value` strings.

    Returns:
      The given values; the other parameters have their defaults.

    Raises:
      ConfigError: there is no such parameter, or its value is invalid.
    """
    known, values = default_parameters(config), Parameters()
    for text in given:
        name, separator, value = text.partition("=")
        if not separator:
            raise ConfigError(f"--parameter {text}: give name=value, such as epochs=3")
        if name not in known:
            hint = near_match(name, known)
            raise ConfigError(f"--parameter {text}: there is no parameter `{name}`; {hint}")
        if name in values:
            raise ConfigError(f"--parameter {text}: `{name}` is given twice")
        try:
            values[name] = read_parameter(config, name, value)
        except ConfigError as error:
            raise ConfigError(f"--parameter {text}: {error}") from None
    for problem in check_for_kubeflow(apply_parameters(config, values)):
        raise ConfigError(f"--parameter {' and '.join(given)}: {problem}")
    return values


def read_parameter(config: PipelineConfig, name: str, text: str) -> ParameterValue:
    """Returns the value of a parameter.

    Args:
      config: the config of the pipeline.
      name: a key of `default_parameters`.
      text: the value as text.

    Raises:
      ConfigError: the value is invalid; the message says what is expected.
    """
    return _READERS[name](config, text)


def apply_parameters(config: PipelineConfig, parameters: Parameters) -> PipelineConfig:
    """Returns the config with a run's parameters, except the span, which is no config key.

    Raises:
      ConfigError: the values do not fit the rest of the config.
    """
    known = default_parameters(config)
    # The config's strategy may have options, which its name would drop.
    changes = {
        name: value for name, value in parameters.items() if name != "span" and value != known[name]
    }
    if changes.get("epochs") == AUTO_EPOCHS:
        changes["epochs"] = AUTO
    values = config.model_dump(mode="json", by_alias=True, exclude_unset=True)
    values["train"] = values.get("train", {}) | changes
    try:
        return PipelineConfig.model_validate(values)
    except ValidationError as error:
        problem = from_validation(error, values, PipelineConfig)[0]
        given = enumerate_names([f"{name}={value}" for name, value in changes.items()], "and")
        raise ConfigError(f"the config cannot have {given}: {problem}") from None


def _read_epochs(config: PipelineConfig, text: str) -> int:
    if text == AUTO:
        return AUTO_EPOCHS
    right = f"right is a whole number, or {AUTO_EPOCHS} for a number that depends on the data"
    try:
        epochs = int(text)
    except ValueError:
        raise ConfigError(right) from None
    if epochs < AUTO_EPOCHS:
        raise ConfigError(right)
    return epochs


def _read_strategy(config: PipelineConfig, text: str) -> str:
    if text not in STRATEGIES:
        raise ConfigError(f"there is no strategy `{text}`; {near_match(text, STRATEGIES)}")
    return text


def _read_span(config: PipelineConfig, text: str) -> str:
    if not text:
        return text
    if not has_spans(config.data):
        raise ConfigError("data.path has no spans; leave it empty")
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
