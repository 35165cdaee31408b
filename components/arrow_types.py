"""Properties of Arrow's types; free of TensorFlow and TFX."""

from __future__ import annotations

import pyarrow as pa


def holds_bytes(kind: pa.DataType) -> bool:
    """Returns whether values of a type are bytes, of any length."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
