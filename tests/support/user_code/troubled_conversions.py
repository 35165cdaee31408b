"""A conversion whose process ends badly, in the place of `converting.conversion`."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from components.processes.worker import Channel


def main(payload: dict[str, Any], channel: Channel) -> None:
    """Dies or hangs, as the variable TROUBLE says."""
    trouble = os.environ["TROUBLE"]
    if trouble == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if trouble == "hang":
        time.sleep(600)
    # TensorFlow, which it imports, takes seconds.
    from components.optimizer.converting import conversion

    conversion.main(payload, channel)
