"""The options for running a training that must not be part of TFX's cache key."""

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
"""The environment variable by which a runner passes the options to the executor, as JSON.

TFX constructs the executor from its class alone.
"""


class TrainerOptions(Settings):
    """The strategy, the launcher of its processes, and the handling of lost ones."""

    choice: StrategyChoice | None = None
    """The strategy; None if it is chosen by the executor."""
    launcher: Literal["local", "kubernetes"] = "local"
    pods: PodSettings | None = None
    """The settings of the pods of the launcher `kubernetes`."""
    backup_scope: str = ""
    """A text that separates backups. Trainings with the same inputs and settings resume from each
    other's backups; those that may run at the same time need different scopes."""
    retries: NonNegativeInt = 3
    """The number of restarts of processes in total."""
    start_timeout: PositiveFloat = 300.0
    """The timeout in seconds for every process of a cluster to answer."""
    backup_steps: PositiveInt | None = None
    """The steps between backups; None backs up at the end of each epoch."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> TrainerOptions:
        """Returns the options that `to_environment` wrote; the defaults if there are none.

        Raises:
          ConfigError: the variable holds something else.
        """
        text = environ.get(OPTIONS_VARIABLE) or "{}"
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or text
            raise ConfigError(
                f"{OPTIONS_VARIABLE}: {where}: {first['msg']}; a valid value is, for example, "
                f"{cls().model_dump_json()}."
            ) from None

    def to_environment(self) -> dict[str, str]:
        """Returns the environment variable with the options."""
        return {OPTIONS_VARIABLE: self.model_dump_json()}
