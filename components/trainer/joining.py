"""Joining a cluster that others start: is this worker's address free, and who is missing?"""

from __future__ import annotations

import socket
import time

from components.processes.failures import StartTimeoutError
from components.processes.ports import answers, is_free
from trainer_module.errors import ConfigError
from trainer_module.tf_config import TFConfig

_POLL_SECONDS = 0.5


def check_own_address(address: str) -> None:
    """Checks that this process can serve at its address; TensorFlow would not say which it is.

    Raises:
      ConfigError: another process listens there.
    """
    port = int(address.rpartition(":")[2])
    if not is_free(port):
        raise ConfigError(
            f"{address}, the address of this task in TF_CONFIG, is taken by another process; stop "
            "that, or give this task another port in the TF_CONFIG of every task."
        )


def await_names(tf_config: TFConfig) -> None:
    """Waits until the names of all peers are known: those of pods are not at first.

    gRPC would wait for minutes after a few vain attempts. How long is for the supervisor to limit.

    Args:
      tf_config: the cluster.
    """
    hosts = {address.rpartition(":")[0].strip("[]") for _, address in tf_config.peers}
    while hosts:
        hosts = {host for host in hosts if not _is_known(host)}
        if hosts:
            time.sleep(_POLL_SECONDS)


def _is_known(host: str) -> bool:
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return False
    return True


def missing_peers(tf_config: TFConfig) -> list[str]:
    """The peers that do not answer, with their addresses."""
    return [f"{name} at {address}" for name, address in tf_config.peers if not answers(address)]


def name_missing(tf_config: TFConfig, limit: float) -> StartTimeoutError | None:
    """The error that names the peers that do not answer; None if all do.

    Args:
      tf_config: the cluster.
      limit: seconds that were waited for them.
    """
    missing = missing_peers(tf_config)
    if not missing:
        return None
    return StartTimeoutError(
        f"no answer from {', '.join(missing)} within {limit:g} s; start "
        f"{'it' if len(missing) == 1 else 'them'}, or mend TF_CONFIG."
    )
