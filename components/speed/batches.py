"""Batches of records as large as is good for them, from the first one on.

TFX's readers let Beam find the size of batches by trying, one record first. What a batch costs
depends on the columns more than on the rows, so that a small or wide table spends most of its time
on batches of a few rows.
"""

from __future__ import annotations

from typing import Any

from absl import flags
from tfx_bsl.coders import batch_util

_MOST_ROWS = 1000
"""Of a batch; as TFX has it by default. Small images grow when they are decoded."""


def batch_by_bytes() -> None:
    """Turns on tfx_bsl's batches of 20 MiB or so many rows; calling it again changes nothing."""
    library: Any = batch_util
    library._BATCH_SIZE_CAP_WITH_BYTE_TARGET = _MOST_ROWS
    flag = flags.FLAGS["tfxio_use_byte_size_batching"]
    flag.default = flag.value = True
