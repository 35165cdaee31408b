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
    """The check that all serving interfaces give equal predictions, without which no model is
    pushed.
    """

    enabled: bool = True
    """Whether to check; `certificate: false` is short for `enabled: false`."""
    tolerance: float = Field(default=0.001, gt=0)
    """The largest difference between predictions that count as equal: absolute for scores; for
    other numbers relative to the expected value, or to the output's usual magnitude if that is
    larger.
    """
    timeout: SomeTime = timedelta(minutes=10)
    """The time limit for a model to predict all golden rows."""
    memory: float = Field(default=8.0, gt=0)
    """The memory limit for predicting all golden rows, in GiB."""

    @property
    def limits(self) -> CertificateLimits:
        """The limits as InfraValidator takes them: the timeout in seconds, the memory in GiB."""
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
    MANUAL = "manual"


class PushSettings(Settings):
    """The destination of a blessed model."""

    directory: str | None = None
    """The folder that a model server watches; default: `<output>/<name>/serving/<name>`."""
    approve: Approve = Approve.AUTO
    """Whether a blessed model is pushed at once, or waits for `scopeline approve`."""


def approvals_have_a_folder(push: PushSettings) -> Iterator[Issue]:
    """Checks that manual approvals push to a folder: object stores cannot rename a version into
    place.
    """
    directory = push.directory
    if push.approve is Approve.MANUAL and directory is not None and is_remote(directory):
        yield Issue(
            "push.approve",
            f"found 'manual', but push.directory is {directory}, and `approve` pushes only to "
            "folders; remove this key, or give a folder",
        )


PUSH_RULES = (approvals_have_a_folder,)
