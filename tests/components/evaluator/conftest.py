"""TFMA 0.52 leaves names such as `tfma.EvalConfig` out when it is imported alone: TFX adds them."""

from __future__ import annotations

import tfx.components  # noqa: F401
