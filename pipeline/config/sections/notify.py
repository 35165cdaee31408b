"""The section `notify`: the receivers and the occasions of notifications."""

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
    """A run failed, or its data or config is unusable."""
    NOT_BLESSED = "not_blessed"
    """A model was not good enough to be pushed."""
    PUSHED = "pushed"
    """A model was pushed."""
    DRIFT = "drift"
    """A span differs from the last earlier span that passed all checks."""
    SKEW = "skew"
    """Requests differ from the training data; not sent if `skew.on_skew` is `warn`."""
    STALE = "stale"
    """A push is overdue by `stale_after`; sent again when a model is pushed."""
    SKIPPED = "skipped"
    """The schedule started no run at a due time, or a span has no rows."""
    LEFT_OUT = "left_out"
    """Spans that exist but are not trained on."""
    HELD = "held"
    """A blessed model was not pushed because of a hold, a pending approval, or a newer model."""
    ROLLED_BACK = "rolled_back"
    """An earlier version was put back into service."""


WEBHOOK_URL = Matching(
    r"https?://\S+", "a webhook's URL begins with http:// or https:// and has no spaces"
)
VariableName = Annotated[
    str,
    Matching(
        r"[A-Za-z_][A-Za-z0-9_]*",
        "expected the name of an environment variable, such as SCOPELINE_SECRET, and never the "
        "secret itself",
    ),
]


class WebhookSettings(Settings):
    """A webhook that receives notifications as JSON by POST; set `url` or `url_variable`."""

    url: Annotated[str, WEBHOOK_URL] | None = None
    """The URL. If the URL is a secret, set `url_variable` instead, as Kubeflow shows the content of
    the config in the arguments of pods.
    """
    url_variable: VariableName | None = None
    """The name of the environment variable with the URL."""
    secret_variable: VariableName | None = None
    """The name of the environment variable with the key of the HMAC-SHA256 signature."""

    @model_validator(mode="after")
    def _one_of_two(self) -> WebhookSettings:
        if (self.url is None) == (self.url_variable is None):
            raise ValueError("expected exactly one of url and url_variable")
        return self


class EmailSettings(Settings):
    """A mail server that receives notifications by SMTP."""

    server: Annotated[
        str,
        Matching(
            r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@?#\[\]]+)(:\d{1,5})?",
            "expected `host` or `host:port`; write user and password into `user` and "
            "`password_variable`",
        ),
    ]
    """`host` or `host:port`; the default port is 25."""
    sender: str
    """The address of the sender."""
    to: list[str] = Field(min_length=1)
    """The addresses of the receivers."""
    tls: bool = True
    """Whether to require an encrypted connection (STARTTLS)."""
    user: str | None = None
    """The user of the mail server; default: no login."""
    password_variable: VariableName | None = None
    """The name of the environment variable with the user's password; required if `user` is set."""

    @model_validator(mode="after")
    def _user_has_password(self) -> EmailSettings:
        if (self.user is None) != (self.password_variable is None):
            raise ValueError("expected both user and password_variable, or neither")
        return self


class NotifySettings(Settings):
    """The receivers and the occasions of notifications; a failed delivery never fails a run."""

    webhook: WebhookSettings | None = None
    """A webhook; default: none."""
    email: EmailSettings | None = None
    """A mail server; default: none."""
    occasions: list[Occasion] = list(Occasion)
    """The occasions of notifications; default: all."""
    stale_after: SomeTime | None = None
    """The time without a push, such as 36h, after which the scheduler sends the occasion `stale`;
    sent again after each further such time until a model is pushed.
    """

    @property
    def variables(self) -> dict[str, str]:
        """The names of the environment variables with secrets, by config key."""
        named = {
            "notify.webhook.url_variable": self.webhook and self.webhook.url_variable,
            "notify.webhook.secret_variable": self.webhook and self.webhook.secret_variable,
            "notify.email.password_variable": self.email and self.email.password_variable,
        }
        return {key: variable for key, variable in named.items() if variable}


def stale_alarms_are_sent(notify: NotifySettings, has_trigger: bool) -> Iterator[Issue]:
    """Checks that `stale_after` is set only with a schedule and with the occasion `stale`."""
    if notify.stale_after is None:
        return
    if not has_trigger:
        yield Issue(
            "notify.stale_after",
            "only the scheduler checks this key; add schedule.cron or schedule.on_new_data, or "
            "remove this key",
        )
    if Occasion.STALE not in notify.occasions:
        yield Issue(
            "notify.stale_after",
            "notify.occasions does not contain `stale`; add it, or remove this key",
        )


NOTIFY_RULES = (stale_alarms_are_sent,)


def read_secret(variable: str) -> str | None:
    """Returns the value of an environment variable, or None if it is unset or blank.

    A Kubernetes Secret made of an empty file sets the variable to an empty string. With an empty
    key, everybody could sign a message.
    """
    value = os.environ.get(variable, "")
    return value if value.strip() else None


def shown_name(variable: str) -> str:
    """Returns the name of a variable for messages, unless it looks like a secret itself.

    A user may have written the secret instead of the variable's name, which is in upper case.
    """
    return variable if variable.isupper() else "that the key names"
