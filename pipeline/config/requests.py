"""What becomes of the requests that a pushed model answers: the config's sections `log`, `skew`."""

from __future__ import annotations

from trainer_module.settings import Settings


class LogSettings(Settings):
    """What `serve --log-requests` writes down."""

    drop: list[str] = []
    """Columns that are left out, such as those with people's names; those that `features` ignores
    are as well."""
