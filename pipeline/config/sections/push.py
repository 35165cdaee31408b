"""`certificate` and `push`: what a blessed model has to show yet, and where it goes."""

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
    """That every way of asking a model gives the same answers, or it is not pushed."""

    enabled: bool = True
    """Whether there is one; `certificate: false` stands for a section that says so."""
    tolerance: float = Field(default=0.001, gt=0)
    """The largest difference of answers that count as equal: of scores as such, of other numbers
    as a share of the expected one, or of the output's usual size where that is larger."""
    timeout: SomeTime = timedelta(minutes=10)
    """How long a model may take to answer all golden rows."""
    memory: float = Field(default=8.0, gt=0)
    """How many GiB it may take to answer them."""

    @property
    def limits(self) -> CertificateLimits:
        """The same as InfraValidator takes them: the timeout in seconds, the memory in GiB."""
        return CertificateLimits(self.tolerance, self.timeout.total_seconds(), self.memory)


def _as_mapping(value: Any) -> Any:
    return {"enabled": value} if isinstance(value, bool) else value


AnyCertificate = Annotated[
    CertificateSettings,
    BeforeValidator(_as_mapping, json_schema_input_type=Literal[False] | CertificateSettings),
]
"""`false`, or a mapping."""


class Approve(StrEnum):
    """Who decides that a blessed model is pushed."""

    AUTO = "auto"
    MANUAL = "manual"


class PushSettings(Settings):
    """Where a blessed model goes."""

    directory: str | None = None
    """The folder a model server watches; default: `<output>/<name>/serving/<name>`."""
    approve: Approve = Approve.AUTO
    """Whether a blessed model is pushed at once, or waits for `local_runner.py approve`."""


def approvals_have_a_folder(push: PushSettings) -> Iterator[Issue]:
    """Who approves a model puts it in place whole, which object stores cannot."""
    directory = push.directory
    if push.approve is Approve.MANUAL and directory is not None and is_remote(directory):
        yield Issue(
            "push.approve",
            f"found 'manual', but push.directory is {directory}, and `approve` pushes to folders "
            "alone; leave it out, or give a folder",
        )


PUSH_RULES = (approvals_have_a_folder,)
