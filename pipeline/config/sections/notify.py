"""The section `notify`: who receives notifications, and on which occasions."""

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
    """The occasion of a notification."""

    FAILED = "failed"
    NOT_BLESSED = "not_blessed"
    PUSHED = "pushed"
    DRIFT = "drift"
    SKEW = "skew"
    """Requests differ from the training data, and `skew.on_skew` is not warn."""
    STALE = "stale"
    """A push is overdue: no model was pushed for `stale_after`; sent once more when a model is
    pushed.
    """
    SKIPPED = "skipped"
    """A firing of the schedule, or a span without rows, that started no run."""
    LEFT_OUT = "left_out"
    """Spans that exist but are not trained on."""
    HELD = "held"
    """A blessed model was not pushed: because of a hold, a pending approval, or a newer model."""
    ROLLED_BACK = "rolled_back"


WEBHOOK_URL = Matching(
    r"https?://\S+", "a webhook's URL begins with http:// or https:// and has no spaces"
)
VariableName = Annotated[
    str,
    Matching(
        r"[A-Za-z_][A-Za-z0-9_]*",
        "expected the name of an environment variable, such as SCOPELINE_SECRET, never the secret "
        "itself",
    ),
]


class WebhookSettings(Settings):
    """A webhook that receives notifications as JSON by POST; give `url` or `url_variable`."""

    url: Annotated[str, WEBHOOK_URL] | None = None
    """The URL, if it is not a secret: it appears in this file and in the arguments of Kubeflow's
    pods.
    """
    url_variable: VariableName | None = None
    """The environment variable that holds the URL."""
    secret_variable: VariableName | None = None
    """The environment variable that holds the key of the HMAC-SHA256 that signs the body."""

    @model_validator(mode="after")
    def _one_of_two(self) -> WebhookSettings:
        if (self.url is None) == (self.url_variable is None):
            raise ValueError("give one of url and url_variable")
        return self


class EmailSettings(Settings):
    """A mail server that receives notifications by SMTP."""

    server: Annotated[
        str,
        Matching(
            r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@?#\[\]]+)(:\d{1,5})?",
            "expected `host` or `host:port`; user and password have keys of their own",
        ),
    ]
    """`host` or `host:port`; the default port is 25."""
    sender: str
    to: list[str] = Field(min_length=1)
    tls: bool = True
    """Whether to require an encrypted connection (STARTTLS)."""
    user: str | None = None
    password_variable: VariableName | None = None
    """The environment variable that holds the user's password; give it together with `user`."""

    @model_validator(mode="after")
    def _user_has_password(self) -> EmailSettings:
        if (self.user is None) != (self.password_variable is None):
            raise ValueError("user and password_variable go together: give both, or none")
        return self


class NotifySettings(Settings):
    """The receivers and the occasions of notifications; a notification that cannot be delivered
    never fails a run.
    """

    webhook: WebhookSettings | None = None
    email: EmailSettings | None = None
    occasions: list[Occasion] = list(Occasion)
    """The occasions of notifications; default: all."""
    stale_after: SomeTime | None = None
    """The time without a push after which `stale` is sent, such as 36h; sent again after each
    further period until a model is pushed. The scheduler checks it.
    """

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that hold secrets, by the config key of each."""
        named = {
            "notify.webhook.url_variable": self.webhook and self.webhook.url_variable,
            "notify.webhook.secret_variable": self.webhook and self.webhook.secret_variable,
            "notify.email.password_variable": self.email and self.email.password_variable,
        }
        return {key: variable for key, variable in named.items() if variable}


def stale_alarms_are_sent(notify: NotifySettings, has_trigger: bool) -> Iterator[Issue]:
    """Checks that a schedule can raise `stale`, and that the occasion is enabled."""
    if notify.stale_after is None:
        return
    if not has_trigger:
        yield Issue(
            "notify.stale_after",
            "only scheduled checks find a stale model; give `schedule:` a cron or on_new_data",
        )
    if Occasion.STALE not in notify.occasions:
        yield Issue(
            "notify.stale_after",
            "the alarm has the occasion `stale`, which notify.occasions lacks",
        )


NOTIFY_RULES = (stale_alarms_are_sent,)


def read_secret(variable: str) -> str | None:
    """Returns the value of an environment variable; None if it is unset or blank.

    A Secret made of an empty file sets its variable to an empty text. Used as a key, that would
    sign with a key that everybody has, or disable the check.
    """
    value = os.environ.get(variable, "")
    return value if value.strip() else None


def shown_name(variable: str) -> str:
    """Returns the name of a variable, unless the name may itself be a secret given by mistake."""
    return variable if variable.isupper() else "that it names"
