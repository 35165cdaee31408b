"""One worker of the cluster of TF_CONFIG; it compares values with the other workers.

`python agreement_worker.py FILE VALUE...` writes the answers to the file, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import tensorflow as tf

from trainer_module.strategies.coordinator import all_workers_equal


def main(file: Path, values: list[int]) -> None:
    """Compares one value after the other, as the other workers do."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    file.write_text(json.dumps([all_workers_equal(strategy, value) for value in values]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(value) for value in sys.argv[2:]])
