"""TPUStrategy: finds and initialises a TPU, and places operations on single cores."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal
from urllib.parse import urlsplit

from trainer_module.errors import ConfigError
from trainer_module.strategies.base import BaseStrategy, Strategy

if TYPE_CHECKING:
    import tensorflow as tf

NAME_VARIABLE = "TPU_NAME"
LOCAL = "local"
"""The name of a TPU that is part of this machine."""
PROBE_SECONDS = 5.0
"""The timeout in seconds for an address that does not answer; TensorFlow would wait forever."""

_HELP = (
    "set train.strategy to {kind: tpu, name: ...} with the name of a running Cloud TPU, "
    "`local` on a TPU machine, or grpc://host:port"
)


class TPUStrategy(BaseStrategy):
    """A replica on each core of a TPU."""

    kind: Literal[Strategy.TPU]
    scales_losses: ClassVar[bool] = False
    tensorflow_names: ClassVar[tuple[str, ...]] = ("TPUStrategy", "TPUStrategyV2")
    repeats_steps: ClassVar[bool] = False
    name: str = ""
    """The TPU's name, `local` for the TPU of this machine, or `grpc://host:port`; default: the
    value of the environment variable TPU_NAME."""
    zone: str | None = None
    """The TPU's Google Cloud zone; default: the zone of this machine."""
    project: str | None = None
    """The TPU's Google Cloud project; default: the project of this machine."""

    def check(self) -> None:
        """Checks the TPU's name and address without connecting to the TPU."""
        check_tpu(self)

    def is_on_cpu(self) -> bool:
        """Returns False, because the replicas are on the TPU."""
        return False

    def build(self) -> tf.distribute.Strategy:
        """Connects to the TPU, which clears its memory, and returns the strategy."""
        return connect(self)


def has_tpu(environ: Mapping[str, str] = os.environ) -> bool:
    """Returns whether TPU_NAME or a device file indicates a TPU, without importing TensorFlow."""
    return bool(environ.get(NAME_VARIABLE)) or _has_device("accel[0-9]*")


def check_tpu(settings: TPUStrategy) -> None:
    """Checks the name and the address of a TPU without connecting to the TPU.

    Raises:
      ConfigError: there is no name and this machine has no TPU, the name is `local` and this
        machine has no TPU, or the address does not answer.
    """
    name = settings.name or os.environ.get(NAME_VARIABLE, "")
    if not name and not has_tpu():
        raise ConfigError(
            f"strategy tpu: the config names no TPU and this machine has none; {_HELP}, or choose "
            "another strategy."
        )
    # Newer TPUs appear as vfio devices, like other hardware, so only `local` accepts them.
    if name == LOCAL and not (_has_device("accel[0-9]*") or _has_device("vfio/[0-9]*")):
        raise ConfigError(
            f"strategy tpu: the TPU is {LOCAL!r}, but this machine has none; {_HELP}, or choose "
            "another strategy."
        )
    if "://" in name:
        _probe(name)


def connect(settings: TPUStrategy) -> tf.distribute.TPUStrategy:
    """Connects to the TPU, initialises it (which clears its memory) and returns the strategy.

    Raises:
      ConfigError: the TPU cannot be found, reached or initialised.
    """
    import tensorflow as tf

    check_tpu(settings)
    name = settings.name or os.environ.get(NAME_VARIABLE, LOCAL)
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=name, zone=settings.zone, project=settings.project
        )
        if name != LOCAL:
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except Exception as error:  # Google's client and TensorFlow may raise any error.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ConfigError(
            f"strategy tpu: TPU {name!r} cannot be used ({lines[0].rstrip('.')}); {_HELP}."
        ) from error


@contextlib.contextmanager
def on_device(index: int = 0, kind: str = "TPU") -> Iterator[None]:
    """Places the operations of a `with` block on one core, for code outside of a strategy.

    Args:
      index: the index of the logical device.
      kind: the kind of the device: TPU, GPU or CPU.

    Raises:
      ConfigError: the device does not exist. TPU devices exist only after `connect`.
    """
    import tensorflow as tf

    devices = tf.config.list_logical_devices(kind)
    if index >= len(devices):
        raise ConfigError(
            f"there is no device {kind}:{index}; the number of {kind} devices is {len(devices)}."
        )
    with tf.device(devices[index].name):
        yield


def _has_device(pattern: str) -> bool:
    return any(Path("/dev").glob(pattern))


def _probe(address: str) -> None:
    parts = urlsplit(address)
    try:
        if parts.hostname is None or parts.port is None:
            raise ValueError
        socket.create_connection((parts.hostname, parts.port), PROBE_SECONDS).close()
    except ValueError:
        raise ConfigError(
            f"strategy tpu: found {address!r} as the TPU's address; expected grpc://host:port, "
            "such as grpc://10.0.0.2:8470."
        ) from None
    except OSError as error:
        raise ConfigError(
            f"strategy tpu: nothing answers at {address} ({error.strerror or error}); start the "
            f"TPU, or correct its address: {_HELP}."
        ) from None
