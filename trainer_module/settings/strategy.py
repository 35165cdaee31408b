"""Which tf.distribute strategy the model is built and trained under, and the processes it needs."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import ConfigDict, PositiveFloat, PositiveInt

from trainer_module.errors import enumerate_names
from trainer_module.sections import DOCSTRING, Registered, Settings, named_or_mapping
from trainer_module.strategies import STRATEGIES, processes_of, strategies_of_several_processes
from trainer_module.strategies.base import BaseStrategy, Processes

_NAMES = "The tf.distribute strategies by name; `auto` picks one by the machine and TF_CONFIG."


def _any_of(strategies: dict[str, str]) -> Any:
    return named_or_mapping("Strategy", _NAMES, strategies)


StrategySettings: TypeAlias = Annotated[BaseStrategy, Registered(STRATEGIES, _any_of)]


def _name_strategies(schema: dict[str, Any]) -> None:
    """Names the strategies that the section is for, as they are registered."""
    several = [f"`{kind}`" for kind in strategies_of_several_processes()]
    schema["description"] = f"The processes that {enumerate_names(several, 'and')} train in."
    with_servers = [f"`{k}`" for k in STRATEGIES if processes_of(k) is Processes.SERVERS]
    servers = schema["properties"]["parameter_servers"]
    servers["description"] = f"{DOCSTRING} for {enumerate_names(with_servers, 'and')}."


class ClusterSettings(Settings):
    """The processes that strategies of several processes train in."""

    model_config = ConfigDict(json_schema_extra=_name_strategies)

    workers: PositiveInt = 2
    """Processes that compute gradients."""
    parameter_servers: PositiveInt = 1
    """Processes that hold the variables,"""
    launcher: Literal["local", "kubernetes"] = "local"
    """Who starts them: `local` on this machine, `kubernetes` as pods of a pipeline on Kubeflow.
    Where TF_CONFIG is set, training joins the cluster that it describes instead."""
    start_timeout: PositiveFloat = 300.0
    """Seconds until a process that does not answer is given up, from when all run."""
