"""The options of the Trainer that must not be part of TFX's cache key."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt, ValidationError

from components.processes.kubernetes.pod_settings import PodSettings
from trainer_module.errors import ConfigError
from trainer_module.runtime import StrategyChoice
from trainer_module.settings import Settings

OPTIONS_VARIABLE = "SCOPELINE_TRAINER_OPTIONS"
"""The environment variable with the options as JSON.

A runner sets the variable, because TFX constructs the executor without arguments.
"""


class TrainerOptions(Settings):
    """The strategy, the launcher of its processes, and the limits of restarts."""

    choice: StrategyChoice | None = None
    """The strategy, or None if the executor chooses the strategy."""
    launcher: Literal["local", "kubernetes"] = "local"
    pods: PodSettings | None = None
    """The settings of the pods of the launcher `kubernetes`."""
    backup_scope: str = ""
    """A string that separates backups. Training runs with the same inputs, settings and scope
    resume from each other's backups; runs that may be simultaneous need different scopes."""
    retries: NonNegativeInt = 3
    """The maximum number of restarts of processes in total."""
    start_timeout: PositiveFloat = 300.0
    """The seconds within which every process of a cluster has to answer."""
    backup_steps: PositiveInt | None = None
    """The number of steps between backups, or None for a backup at the end of each epoch."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> TrainerOptions:
        """Returns the options in the environment variable, or the defaults if it is not set.

        Raises:
          ConfigError: the value of the variable is not valid.
        """
        text = environ.get(OPTIONS_VARIABLE) or "{}"
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"])) or text
            raise ConfigError(
                f"{OPTIONS_VARIABLE}: {key}: {first['msg']}; a valid value is, for example, "
                f"{cls().model_dump_json()}."
            ) from None

    def to_environment(self) -> dict[str, str]:
        """Returns the environment variable and its value."""
        return {OPTIONS_VARIABLE: self.model_dump_json()}
