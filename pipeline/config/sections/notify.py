"""`notify`: who is told of what becomes of a pipeline."""

from __future__ import annotations

import os
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from pipeline.config.issues import Issue
from trainer_module.sections import Matching
from trainer_module.settings import (
    Settings,
)
from trainer_module.settings.durations import SomeTime


class Occasion(StrEnum):
    """What a notification tells of."""

    FAILED = "failed"
    NOT_BLESSED = "not_blessed"
    PUSHED = "pushed"
    DRIFT = "drift"
    SKEW = "skew"
    """Requests are unlike the training data, and `skew.on_skew` is not warn."""
    STALE = "stale"
    """Nothing has been pushed for `stale_after`; and once more when something is."""
    SKIPPED = "skipped"
    """A firing of the clock, or a span without rows, that came to nothing."""
    LEFT_OUT = "left_out"
    """Spans that are not trained on although they are there."""
    HELD = "held"
    """A blessed model was not pushed: of a hold, as it waits for approval, or was superseded."""
    ROLLED_BACK = "rolled_back"


WEBHOOK_URL = Matching(
    r"https?://\S+", "a webhook's URL begins with http:// or https:// and has no spaces"
)
VariableName = Annotated[
    str,
    Matching(
        r"[A-Za-z_][A-Za-z0-9_]*",
        "right is the name of an environment variable, such as SCOPELINE_SECRET, never the secret "
        "itself",
    ),
]


class WebhookSettings(Settings):
    """A URL that is told by a POST of JSON; one of `url` and `url_variable`."""

    url: Annotated[str, WEBHOOK_URL] | None = None
    """Where it is no secret: it stands in this file and in the arguments of Kubeflow's pods."""
    url_variable: VariableName | None = None
    """The environment variable with the URL."""
    secret_variable: VariableName | None = None
    """The environment variable with the key of the HMAC-SHA256 that signs the body."""

    @model_validator(mode="after")
    def _one_of_two(self) -> WebhookSettings:
        if (self.url is None) == (self.url_variable is None):
            raise ValueError("give one of url and url_variable")
        return self


class EmailSettings(Settings):
    """A mail server that is told by SMTP."""

    server: Annotated[
        str,
        Matching(
            r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@?#\[\]]+)(:\d{1,5})?",
            "right is `host` or `host:port`; user and password have keys of their own",
        ),
    ]
    """`host` or `host:port`; 25 where there is no port."""
    sender: str
    to: list[str] = Field(min_length=1)
    tls: bool = True
    """Whether to insist on an encrypted connection (STARTTLS)."""
    user: str | None = None
    password_variable: VariableName | None = None
    """The environment variable with the user's password; it goes together with `user`."""

    @model_validator(mode="after")
    def _user_has_password(self) -> EmailSettings:
        if (self.user is None) != (self.password_variable is None):
            raise ValueError("user and password_variable go together: give both, or none")
        return self


class NotifySettings(Settings):
    """Who is told of what; a notification that cannot be delivered never fails a run."""

    webhook: WebhookSettings | None = None
    email: EmailSettings | None = None
    occasions: list[Occasion] = list(Occasion)
    """What they are told of."""
    stale_after: SomeTime | None = None
    """Tell of `stale` when nothing has been pushed for so long, such as 36h, and again after each
    further such time, until something is; looks of the scheduler find out."""

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that hold its secrets, by the key that names each."""
        named = {
            "notify.webhook.url_variable": self.webhook and self.webhook.url_variable,
            "notify.webhook.secret_variable": self.webhook and self.webhook.secret_variable,
            "notify.email.password_variable": self.email and self.email.password_variable,
        }
        return {key: variable for key, variable in named.items() if variable}


def stale_alarms_reach_somebody(notify: NotifySettings, has_trigger: bool) -> Iterator[Issue]:
    """The looks of a schedule raise the alarm, and it is sent as an occasion."""
    if notify.stale_after is None:
        return
    if not has_trigger:
        yield Issue("notify.stale_after", "nobody looks without a `schedule:` that runs by itself")
    if Occasion.STALE not in notify.occasions:
        yield Issue("notify.stale_after", "it is told as `stale`, which notify.occasions lacks")


NOTIFY_RULES = (stale_alarms_reach_somebody,)


def read_secret(variable: str) -> str | None:
    """Returns the value of an environment variable; None if it is not set, or holds nothing but
    blanks.

    A Secret that was made of an empty file sets its variable, too. Who takes that for a key signs
    with one that everybody knows, or asks for none.
    """
    value = os.environ.get(variable, "")
    return value if value.strip() else None


def shown_name(variable: str) -> str:
    """Returns the name of a variable, unless it may be a secret that was taken for one."""
    return variable if variable.isupper() else "that it names"
