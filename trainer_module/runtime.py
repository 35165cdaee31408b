"""What a process that trains is told besides the settings; it is not part of TFX's cache key."""

from __future__ import annotations

from pydantic import NonNegativeInt, PositiveInt

from trainer_module.settings import Settings, StrategySettings


class StrategyChoice(Settings):
    """A strategy that is not `auto`, and why it was picked."""

    strategy: StrategySettings
    reason: str = ""
    """Empty where the config named it."""


class Runtime(Settings):
    """Where and how one process trains; `run_fn` finds it as `fn_args.runtime`."""

    choice: StrategyChoice | None = None
    """The strategy; None where `train.strategy` says it."""
    backup_directory: str | None = None
    """Where training goes on from if it was interrupted; None: in the folder of the model run."""
    writes_backup: bool = True
    """Whether this process does; False if another one does so for it, in the same folder."""
    backup_steps: PositiveInt | None = None
    """Steps between backups; None is one at the end of each epoch."""
    continued_epochs: NonNegativeInt = 0
    """Those of an earlier training in the backup's folder, which this one goes on from."""
    restarts: tuple[str, ...] = ()
    """A sentence for each time that training had to be started again."""
    workers: PositiveInt = 1
    """Processes that compute gradients."""

    @property
    def reason(self) -> str:
        """Why the strategy was picked; empty where the config named it."""
        return self.choice.reason if self.choice else ""
