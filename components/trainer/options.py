"""How training is looked after: what must not be part of TFX's cache key."""

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
"""The environment variable by which a runner passes them to the executor, as JSON.

TFX makes the executor from its class alone.
"""


class TrainerOptions(Settings):
    """The strategy, who starts its processes, and what happens when one is lost."""

    choice: StrategyChoice | None = None
    """The strategy; None where nobody has chosen one before the executor runs."""
    launcher: Literal["local", "kubernetes"] = "local"
    pods: PodSettings | None = None
    """What the launcher `kubernetes` gives its pods."""
    backup_scope: str = ""
    """Trainings of the same inputs and settings go on from each other's backups; where they may be
    under way at the same time, not with another scope."""
    retries: NonNegativeInt = 3
    """How often processes may be started again, in all."""
    start_timeout: PositiveFloat = 300.0
    """Seconds until every process of a cluster has to have answered."""
    backup_steps: PositiveInt | None = None
    """Steps between backups; None is one at the end of each epoch."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> TrainerOptions:
        """Returns the options that `to_environment` wrote; the defaults where there are none.

        Raises:
          ConfigError: if the variable holds something else.
        """
        text = environ.get(OPTIONS_VARIABLE) or "{}"
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or text
            raise ConfigError(
                f"{OPTIONS_VARIABLE}: {where}: {first['msg']}; right is, for example, "
                f"{cls().model_dump_json()}."
            ) from None

    def to_environment(self) -> dict[str, str]:
        """Returns the environment variable that carries them."""
        return {OPTIONS_VARIABLE: self.model_dump_json()}
