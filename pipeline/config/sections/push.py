"""The sections `certificate` and `push`: the last check of a blessed model, and its destination."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from components.example_gen.paths import is_remote
from components.pusher.certificate import CertificateLimits
from pipeline.config.issues import Issue
from trainer_module.settings import (
    Settings,
)
from trainer_module.settings.durations import SomeTime


class CertificateSettings(Settings):
    """The check before each push that all serving interfaces give equal predictions."""

    enabled: bool = True
    """Whether the check is made; `certificate: false` is short for `enabled: false`."""
    tolerance: float = Field(default=0.001, gt=0)
    """The largest difference between predictions that count as equal. For scores, the difference is
    absolute. For other numbers, it is relative to the expected value or to the typical magnitude of
    the output, whichever is larger.
    """
    timeout: SomeTime = timedelta(minutes=10)
    """The time limit for the predictions of all golden rows."""
    memory: float = Field(default=8.0, gt=0)
    """The memory limit for the predictions of all golden rows, in GiB."""

    @property
    def limits(self) -> CertificateLimits:
        """The limits in the form of InfraValidator: the timeout in seconds, the memory in GiB."""
        return CertificateLimits(self.tolerance, self.timeout.total_seconds(), self.memory)


def _as_mapping(value: Any) -> Any:
    return {"enabled": value} if isinstance(value, bool) else value


AnyCertificate = Annotated[
    CertificateSettings,
    BeforeValidator(_as_mapping, json_schema_input_type=Literal[False] | CertificateSettings),
]
"""A `certificate` value: `false`, or a mapping."""


class Approve(StrEnum):
    """Whether blessed models are pushed automatically."""

    AUTO = "auto"
    """A blessed model is pushed immediately."""
    MANUAL = "manual"
    """A blessed model waits for `scopeline approve`."""


class PushSettings(Settings):
    """The destination of a blessed model."""

    directory: str | None = None
    """The folder that a model server watches; default: `<output>/<name>/serving/<name>`."""
    approve: Approve = Approve.AUTO
    """Whether a blessed model is pushed immediately, or waits for `scopeline approve`."""


def approvals_have_a_folder(push: PushSettings) -> Iterator[Issue]:
    """Checks that manual approvals push to a local folder, as object stores cannot rename a
    folder.
    """
    directory = push.directory
    if push.approve is Approve.MANUAL and directory is not None and is_remote(directory):
        yield Issue(
            "push.approve",
            f"found 'manual', but push.directory is {directory}, and `approve` pushes only to "
            "local folders; remove this key, or write a local folder into push.directory",
        )


PUSH_RULES = (approvals_have_a_folder,)
