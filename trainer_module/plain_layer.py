"""The base class of the project's own layers."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras


class PlainLayer(tf_keras.layers.Layer):
    """A layer whose `call` needs no AutoGraph, as it has no Python conditions on tensors.

    AutoGraph takes a tenth of a second to rewrite the source of a layer's `call`.
    """

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Calls the layer without AutoGraph."""
        call = tf.autograph.experimental.do_not_convert(super().__call__)
        return call(*arguments, **options)
