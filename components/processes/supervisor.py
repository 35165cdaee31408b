"""The supervisor of a cluster, which starts, watches and restarts the workers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NoReturn

from components.processes.ending import CLUSTER_GRACE_SECONDS, POLL_SECONDS
from components.processes.failures import Failure, OverdueError, StartTimeoutError, first_cause
from components.processes.launcher import Cluster, Launcher, RunningWorker, WorkerEvent, WorkerSpec
from components.processes.stopping import defer_stop
from trainer_module.errors import counted
from trainer_module.runtime import report_notice, report_step
from trainer_module.settings.durations import show_seconds
from trainer_module.tf_config import TFConfig

logger = logging.getLogger(__name__)

LINGER_SECONDS = 10.0
"""The time for the other workers of a gang to end after the chief is done."""
BEGIN_SECONDS = 1800.0
"""The time for a worker to begin. A node may have to be added, and a large image pulled."""
FIRST_CHECK_SECONDS = 2.0
"""The time before the first check for missing external workers."""
CHECK_SECONDS = 10.0
"""The interval of the later checks for missing external workers."""
PORT_ATTEMPTS = 5
"""The number of attempts with new ports if another process has taken a port."""


class Policy(StrEnum):
    """The workers that are restarted after a worker has died."""

    GANG = "gang"
    """Every worker is restarted, as the workers work in lockstep."""
    COORDINATOR = "coordinator"
    """Only the worker that died is restarted. All workers are restarted if the chief or a parameter
    server died, or if the chief was not ready yet."""


@dataclass(frozen=True)
class ClusterJob:
    """Workers that form a cluster. The job is done when the first worker, the chief, is done."""

    specs: Sequence[WorkerSpec]
    """The workers. `restarts` is added to each payload. If the job has several workers, `tf_config`
    with the worker's place is added too."""
    policy: Policy = Policy.GANG
    start_timeout: float | None = None
    """The seconds for all workers to be ready after all have begun, or None for no limit."""
    retries: int = 3
    """The most restarts of workers in total."""
    missing: Callable[[], list[str]] | None = None
    """A function that returns the names of external workers that do not respond, or None if the
    job has no external workers."""


class WatchedWorker:
    """A running worker with its reported events and its failure."""

    def __init__(
        self, spec: WorkerSpec, handle: RunningWorker, on_event: Callable[[WorkerEvent], None]
    ) -> None:
        """Watches a worker that was just started.

        Args:
          on_event: called with events of the worker's work, such as its progress.
        """
        self.spec = spec
        self.handle = handle
        self.is_alive = False
        self.is_ready = False
        self.is_done = False
        self.failure: Failure | None = None
        self.started = time.monotonic()
        """The time at which the worker was requested. The worker may begin much later."""
        self._on_event = on_event

    @property
    def has_ended(self) -> bool:
        """Whether the worker is done or has failed."""
        return self.is_done or self.failure is not None

    def poll(self) -> None:
        """Processes the worker's events since the last call, and the worker's end."""
        # The status is read before the events, so that no event of an ended process is missed.
        status = self.handle.poll()
        for event in self.handle.events():
            self._take(event)
        if status is not None and not self.has_ended:
            self.failure = Failure.of_exit(self.spec.place.name, status, self.handle.remark())

    def overdue_error(self) -> OverdueError | None:
        """Returns the error of a worker that has exceeded its time limit, or None."""
        limit = self.spec.seconds
        if limit is None or self.has_ended or time.monotonic() - self.started <= limit:
            return None
        failure = Failure(
            self.spec.place.name, time.time(), f"took longer than {show_seconds(limit)}"
        )
        return OverdueError(failure, self.handle.log_tail())

    @property
    def is_awaited(self) -> bool:
        """Whether the worker is not ready yet, and has not ended."""
        return not (self.is_ready or self.has_ended)

    def describe_start(self) -> str:
        """Returns the name and the state of a worker that is not ready yet."""
        if self.is_alive:
            state = "running, and waiting for other workers"
        elif self.handle.begin_time is None:
            state = "not running yet"
        else:
            state = "running, but it has sent no event"
        remark = self.handle.remark()
        return f"{self.spec.place.name} ({state}{f'; {remark}' if remark else ''})"

    def _take(self, event: WorkerEvent) -> None:
        self.is_alive = True
        match event.kind:
            case "ready":
                self.is_ready = True
            case "error":
                self.failure = Failure.of_error(self.spec.place.name, event.values)
            case "done":
                self.is_done = True
            case "alive":
                pass
            case _:
                self.is_ready = True
                self._on_event(event)


class Supervisor:
    """Runs the workers of one job."""

    def __init__(self, launcher: Launcher, job: ClusterJob) -> None:
        self._launcher = launcher
        self._job = job
        self._cluster: Cluster = {}
        self._members: list[WatchedWorker] = []
        self._restarts: list[str] = []
        self._port_attempts = 1
        self._missing: list[str] = []
        self._next_check = 0.0

    def run(self) -> list[str]:
        """Runs the job until the chief is done. Afterwards no worker is left, even after an error.

        Returns:
          A sentence for each restart of workers.

        Raises:
          ScopelineError: a worker raised this error, which the user can fix.
          StartTimeoutError: a worker did not begin or was not ready in time.
          OverdueError: a worker exceeded its time limit.
          WorkerFailedError: a worker failed permanently, or more often than `retries` allows.
        """
        try:
            while failure := self._attempt():
                self._launcher.stop_all()
                self._prepare_retry(failure)
        finally:
            with defer_stop():
                self._launcher.stop_all()
        return self._restarts

    def _attempt(self) -> Failure | None:
        """Starts and watches all workers.

        Returns:
          None if the chief is done, or else the failure that requires a restart of all workers.
        """
        self._start_all()
        while True:
            failed = [member for member in self._poll() if member.failure]
            if self._chief.is_done:
                break
            if failed and not self._restart_alone(failed):
                return self._settle()
            self._check_started()
            for member in self._members:
                if error := member.overdue_error():
                    raise error
            time.sleep(POLL_SECONDS)
        if self._job.policy is Policy.GANG:
            self._watch(LINGER_SECONDS)
        return None

    def _start_all(self) -> None:
        specs = self._job.specs
        if len(specs) > 1:
            report_step(f"starts {len(specs)} processes")
            self._cluster = self._launcher.allocate([spec.place for spec in specs])
        self._missing, self._next_check = [], time.monotonic() + FIRST_CHECK_SECONDS
        self._members = []
        for spec in specs:
            self._members.append(self._start(spec))

    def _start(self, spec: WorkerSpec) -> WatchedWorker:
        payload = {**spec.payload, "restarts": list(self._restarts)}
        if self._cluster:
            config = TFConfig(self._cluster, spec.place.type, spec.place.index)
            payload["tf_config"] = config.to_json()
        handle = self._launcher.start(replace(spec, payload=payload))
        # The progress of the chief is the progress of the whole job.
        return WatchedWorker(spec, handle, _forward if spec is self._job.specs[0] else _ignore)

    def _poll(self) -> list[WatchedWorker]:
        for member in self._members:
            member.poll()
        return self._members

    def _watch(self, seconds: float) -> None:
        """Watches until all workers have ended, for a limited number of seconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if all(member.has_ended for member in self._poll()):
                return
            time.sleep(POLL_SECONDS)

    def _settle(self) -> Failure | None:
        """Waits until further failures have been reported, up to a grace period.

        Returns:
          The failure that caused the others, or None if the chief finished in the meantime.
        """
        self._watch(CLUSTER_GRACE_SECONDS)
        if self._chief.is_done:
            return None
        return first_cause(member.failure for member in self._members if member.failure)

    def _restart_alone(self, failed: Sequence[WatchedWorker]) -> bool:
        """Restarts the failed workers alone, if the chief can continue without them.

        Returns:
          Whether the workers were restarted. If not, all workers have to be restarted.
        """
        if self._job.policy is Policy.GANG or not self._chief.is_ready:
            return False
        failures = [member.failure for member in failed if member.failure]
        if not all(member.spec.place.type == "worker" for member in failed):
            return False
        if not all(failure.is_transient for failure in failures):
            return False
        if len(failures) > self._retries_left:
            return False
        for member, failure in zip(failed, failures, strict=True):
            self._note(failure, f"{member.spec.place.name} restarts")
            member.handle.kill()
            self._members[self._members.index(member)] = self._start(member.spec)
        return True

    @property
    def _chief(self) -> WatchedWorker:
        return self._members[0]

    @property
    def _retries_left(self) -> int:
        return self._job.retries - len(self._restarts)

    def _prepare_retry(self, failure: Failure) -> None:
        """Prepares the restart of all workers, or raises the failure if a restart cannot help."""
        if failure.is_port_taken and self._cluster and self._port_attempts < PORT_ATTEMPTS:
            self._port_attempts += 1
            logger.warning("%s; all workers restart on other ports", failure.summary)
        elif failure.is_transient and self._retries_left > 0:
            self._note(failure, "all workers restart")
        else:
            member = next(member for member in self._members if member.failure is failure)
            tail = member.handle.log_tail()
            logger.error("The last lines of %s:\n%s", failure.worker, "\n".join(tail))
            raise failure.to_exception(tail, self._describe_restarts(failure))

    def _note(self, failure: Failure, next_step: str) -> None:
        """Records and reports a failure after which workers are restarted."""
        self._restarts.append(failure.summary)
        report_notice(f"{failure.sentence}; {next_step}")

    def _describe_restarts(self, failure: Failure) -> str:
        """Returns the number of restarts, which is appended to the message of a failure."""
        if not self._restarts or not failure.is_transient:
            return ""
        return f"; {counted(len(self._restarts), 'restart')} did not help"

    def _check_started(self) -> None:
        """Raises StartTimeoutError if a worker has not begun, or is not ready, in time."""
        limit = self._job.start_timeout
        awaited = [member for member in self._members if member.is_awaited]
        if limit is None or not awaited:
            return
        now = time.monotonic()
        self._report_missing(now, limit)
        if not_begun := [member for member in awaited if member.handle.begin_time is None]:
            if late := [member for member in not_begun if now - member.started > BEGIN_SECONDS]:
                advice = (
                    "free resources for them, or request less (smaller resources, fewer workers)"
                )
                self._fail_start(late, BEGIN_SECONDS, advice)
            return
        # The limit counts from the begin of the last worker, for which the other workers wait.
        if now - max(member.handle.begin_time or 0 for member in self._members) > limit:
            advice = "see their last lines in the log, or allow more time (start_timeout)"
            self._fail_start(awaited, limit, advice)

    def _report_missing(self, now: float, limit: float) -> None:
        """Reports the missing external workers if they have changed since the last check."""
        if self._job.missing is None or now < self._next_check:
            return
        missing = self._job.missing()
        self._next_check = time.monotonic() + CHECK_SECONDS
        if missing and missing != self._missing:
            report_notice(f"waits for {', '.join(missing)}, at most {limit:g} s")
        self._missing = missing

    def _fail_start(self, late: Sequence[WatchedWorker], limit: float, advice: str) -> NoReturn:
        for member in late:
            if tail := "\n".join(member.handle.log_tail()):
                logger.error("The last lines of %s:\n%s", member.spec.place.name, tail)
        states = ", ".join(member.describe_start() for member in late)
        raise StartTimeoutError(f"not ready within {limit:g} s: {states}; {advice}.")


def _ignore(event: WorkerEvent) -> None:
    del event


def _forward(event: WorkerEvent) -> None:
    if event.kind == "progress":
        report_step(**event.values)
