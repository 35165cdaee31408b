"""A task in a pod: `python -m components.processes.kubernetes.pod MODULE`.

The environment holds what it is told, and events go into the log.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from typing import Any

from components.processes.child import Channel, load_main, run_task
from components.processes.kubernetes.pod_protocol import (
    INDEX_VARIABLE,
    MARK,
    TASKS_VARIABLE,
    unpack,
)
from components.processes.local.environment import INTEROP_THREADS, without_proxy
from trainer_module.machine import count_cores


def enter_pod(environ: MutableMapping[str, str] = os.environ) -> dict[str, Any]:
    """Takes what the launcher left in the environment; returns the payload."""
    # Processes that this one starts are tasks of nobody.
    task = unpack(environ.pop(TASKS_VARIABLE), int(environ[INDEX_VARIABLE]))
    environ.update(task.environment)
    cluster = task.payload.get("tf_config", {}).get("cluster", {})
    hosts = {address.rpartition(":")[0] for tasks in cluster.values() for address in tasks}
    environ["no_grpc_proxy"] = without_proxy(environ, sorted(hosts))
    # Threads that wait for other tasks: fewer than there are workers would be a deadlock.
    enough = max(len(cluster.get("worker", [])) + 1, count_cores())
    environ.setdefault(INTEROP_THREADS, str(enough))
    return task.payload


if __name__ == "__main__":
    told = enter_pod()
    run_task(load_main(sys.argv[1]), told, Channel(os.dup(2), MARK))
