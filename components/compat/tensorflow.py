"""TensorFlow, as of 2.21, without importing it: whether it has begun to compute in this process."""

from __future__ import annotations

import logging
import sys

_CONTEXT = "tensorflow.python.eager.context"

logger = logging.getLogger(__name__)


def has_computed() -> bool:
    """Whether TensorFlow has begun to compute, after which a fork of this process hangs.

    The module is private, and looked up among those that are imported; the public way would be a
    function of TensorFlow's that starts nothing by being called. Where the module has not the
    function known here, it may have: fresh processes are started, which are slower.
    """
    context = sys.modules.get(_CONTEXT)
    if context is None:
        return False
    try:
        return context.context_safe() is not None
    except AttributeError:
        logger.warning("slower, without forks: %s.context_safe is missing", _CONTEXT)
        return True
