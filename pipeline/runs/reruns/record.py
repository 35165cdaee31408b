"""What the last run came to, kept so that one which would only repeat it need not begin."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from pydantic import BaseModel, ValidationError

from components.disk import write_whole
from pipeline.records.event_log import EventLog
from pipeline.records.summary import RunSummary, Status
from pipeline.run_context import RunContext
from pipeline.runs.console.run_console import shown
from pipeline.runs.reruns.facts import Facts, given_to, left_by
from pipeline.versions.expiry import find_expired

logger = logging.getLogger(__name__)

FINAL = (Status.PUSHED, Status.NOT_BLESSED)
"""How a run ends that nobody has to do anything about, and no time that passes changes."""
FORMAT = 1
"""Of the file; a change of what is compared needs no other, as the code is compared as well."""


class LastRun(BaseModel):
    """A run whose outcome was final, and everything that another would decide by."""

    format: int = FORMAT
    run: str
    ended: datetime
    status: Status
    pushed: str | None
    reason: str | None
    given: Facts
    left: Facts

    @property
    def exit_code(self) -> int:
        """That of a run that would repeat it."""
        return self.status.exit_code

    def __str__(self) -> str:
        """What a run that would repeat it says."""
        ended = self.ended.astimezone().strftime("%Y-%m-%d %H:%M:%S")
        if self.status is Status.PUSHED:
            came_to = f"whose model is {shown(self.pushed or '')}"
        else:
            came_to = f"which pushed nothing: {self.reason}"
        return (
            f"nothing has changed since run {self.run}, which ended {ended}, {came_to}; "
            "`run --force` runs all the same"
        )


class Reruns:
    """Says before a run whether it would repeat the last one; writes down after it what it left."""

    def __init__(self, context: RunContext) -> None:
        """Looks at what the run is given."""
        self._context = context
        self._file = context.layout.last_run
        self._changes = ""
        try:
            self._given = given_to(context)
        except OSError as error:
            logger.info("Whether anything has changed cannot be told: %s", error)
            self._given = None

    def repeated(self) -> LastRun | None:
        """The last run, if this one would only repeat it."""
        try:
            last = LastRun.model_validate_json(self._file.read_text())
            left = left_by(self._context, last.run)
        except (OSError, ValidationError):
            return None  # There is none, or another version of Scopeline has written it.
        if self._given is None or left is None or last.format != FORMAT:
            return None
        changed = [*_differences(last.given, self._given), *_differences(last.left, left)]
        self._changes = f"Changed since run {last.run}: {', '.join(changed)}"
        return None if changed else last

    def forget(self) -> None:
        """A run begins: until it has ended well, there is no outcome to repeat."""
        if self._changes:
            logger.info("%s", self._changes)
        self._file.unlink(missing_ok=True)

    def keep(self, summary: RunSummary, would_run: Callable[[], bool]) -> None:
        """Writes down what a run has come to, if another now would do nothing.

        A failure is no reason for a run to fail: the next one then runs.

        Args:
          summary: of the run, which has ended.
          would_run: whether a component would run now.
        """
        context = self._context
        if self._given is None or summary.status not in FINAL:
            return
        try:
            event_log = EventLog(context.layout.event_log)
            if find_expired(context.config.schedule, context.layout, event_log) or would_run():
                logger.info("The next run has something to do, though nothing changes")
                return
            left = left_by(context, summary.run_id)
            if left is None:
                return
            last = LastRun(
                run=summary.run_id,
                ended=datetime.now().astimezone(),
                status=summary.status,
                pushed=summary.pushed,
                reason=summary.reason,
                given=self._given,
                left=left,
            )
            write_whole(self._file, last.model_dump_json(indent=2) + "\n")
        except Exception:
            logger.exception("What the run has come to could not be kept for the next one")


def _differences(before: Facts, now: Facts) -> list[str]:
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
