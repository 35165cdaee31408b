"""Properties of Arrow's types. The module does not import TensorFlow or TFX."""

from __future__ import annotations

import pyarrow as pa


def holds_bytes(kind: pa.DataType) -> bool:
    """Returns whether a type is bytes of variable length."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
