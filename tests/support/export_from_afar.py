"""Tries to export a model whose variables are on another host, which can write no file.

`python export_from_afar.py` gets the folder of what Transform left, and the settings as JSON.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path

import tensorflow as tf

from components.processes.ports import free_ports
from tests.support.trainer_data import Transformed
from trainer_module.export.saving import try_export
from trainer_module.settings import TrainerSettings
from trainer_module.training.building import build_model


def serve(port: int) -> None:
    """Is the other host."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    cluster = tf.train.ClusterSpec({"worker": [f"localhost:{port}"]})
    tf.distribute.Server(cluster, "worker", 0).join()


def main(data: Transformed) -> None:
    """Ends when the model has been exported."""
    (port,) = free_ports(1)
    host = os.fork()
    if not host:
        serve(port)
    try:
        tf.config.experimental_connect_to_host(f"localhost:{port}")
        afar = tf.distribute.OneDeviceStrategy("/job:worker/replica:0/task:0/device:CPU:0")
        model = build_model(data.problem, data.settings, afar, 1)
        assert "/job:worker" in model.variables[0].device
        try_export(model, data.tft_output, data.problem, data.settings)
    finally:
        os.kill(host, signal.SIGKILL)
        os.waitpid(host, 0)


if __name__ == "__main__":
    main(Transformed(Path(sys.argv[1]), TrainerSettings.model_validate_json(sys.argv[2]), [], []))
