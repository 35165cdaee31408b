"""The process of a conversion: `main` is called in it, see `convert_in_child`."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

from components.optimizer.converting.conversion import convert
from components.processes.worker import Channel
from trainer_module.export.variants.measuring import load_sample


def main(payload: dict[str, Any], channel: Channel) -> None:
    """Converts as the payload says."""
    del channel
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    sample = load_sample(Path(payload["sample"]))
    convert(payload["name"], Path(payload["saved_model"]), sample, Path(payload["folder"]))
