"""What a search is told: where it looks, and what for."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from pydantic import ValidationError

from trainer_module.errors import TrainingError
from trainer_module.sections import Settings
from trainer_module.settings import SETTINGS_KEY, TrainerSettings
from trainer_module.settings.tune import TUNE_KEY, TuneSettings
from trainer_module.tuning.automatic import automatic_space
from trainer_module.tuning.objective import Objective, find_objective
from trainer_module.tuning.space import Dimension, Values, candidate, dimensions_of

PARTS = 5
"""The train split is dealt into so many; one of them is held out from a trial and measured on."""


class SearchPlan(Settings):
    """The settings as a config gives them, and those of the search."""

    given: dict[str, Any]
    """Of the training, without what the config leaves out: another kind of model has other values
    for that."""
    tune: TuneSettings

    @classmethod
    def from_custom_config(cls, custom_config: dict[str, Any]) -> SearchPlan:
        """What `custom_config` says, with the columns that the data was found to have."""
        return cls(given=custom_config[SETTINGS_KEY], tune=custom_config[TUNE_KEY])

    def settings(self, values: Values) -> TrainerSettings:
        """Those of a candidate.

        Raises:
          TrainingError: the values do not go together.
        """
        try:
            return TrainerSettings.model_validate(candidate(self.given, values))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise TrainingError(f"{where}: {first['msg']}") from None

    @cached_property
    def untuned(self) -> TrainerSettings:
        """Those of the config as it stands."""
        return self.settings({})

    @cached_property
    def objective(self) -> Objective:
        """What is looked for."""
        return find_objective(self.untuned.label_task, self.tune.objective)

    @cached_property
    def dimensions(self) -> tuple[Dimension, ...]:
        """Where it is looked for."""
        if self.tune.is_automatic:
            return automatic_space(self.untuned)
        return dimensions_of(self.tune.space)
