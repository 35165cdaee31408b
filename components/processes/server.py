"""A server of a cluster, which computes or stores variables for the coordinator of a training.

`python -m components.processes.server TF_CONFIG [MODEL]` runs a server of a standing cluster.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable

from trainer_module.errors import ScopelineError
from trainer_module.settings.model import load_builder
from trainer_module.tf_config import VARIABLE, TFConfig, read_tf_config


def serve(config: TFConfig, model: str | None, on_ready: Callable[[], None]) -> None:
    """Serves as a worker of a cluster until the process is killed.

    Args:
      model: the import path of a user's builder, or None. The builder is imported first, as it may
        register operations.
      on_ready: called as soon as coordinators can connect.

    Raises:
      TrainingError: the builder does not exist, or the server could not be restricted to this
        machine.
    """
    if model:
        load_builder(model)
    import tensorflow as tf

    from trainer_module.strategies.network import kept_local

    with kept_local(config):
        server = tf.distribute.Server(
            tf.train.ClusterSpec(config.cluster),
            job_name=config.task_type,
            task_index=config.task_index,
        )
    on_ready()
    server.join()


def main() -> None:
    """Runs a server of a standing cluster.

    Until the server is released, it ends if the process that started it ends.
    """
    threading.Thread(target=_end_unless_released, daemon=True).start()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    text, *model = sys.argv[1:]
    config = read_tf_config({VARIABLE: text})
    assert config is not None  # noqa: S101 - a cluster has several workers
    try:
        serve(config, model[0] if model else None, lambda: None)
    except ScopelineError as error:
        sys.exit(str(error))


def _end_unless_released() -> None:
    """Ends this process if standard input is closed without a byte.

    The process that started this server then died before it released the server.
    """
    if not os.read(0, 1):
        os._exit(1)


if __name__ == "__main__":
    main()
