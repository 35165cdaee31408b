"""What tf_keras 2.21 keeps of layers, models, outputs and metrics, and has no public name for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tf_keras

from trainer_module.compat.insides import Known, require_known

_LAYER = "tf_keras.src.engine.base_layer"
_NORMALIZATION = "tf_keras.src.layers.normalization.batch_normalization"

_LOGITS: Known = {
    "tf_keras.src.backend": {"sigmoid": "4b68ad6b9845", "softmax": "a544367da9c6"},
    "tf_keras.src.activations": {"sigmoid": "07216143ac7e", "softmax": "b2fc2ae42079"},
}
"""What leaves the logits with the probabilities."""

_LAYERS_WITHIN: Known = {
    _LAYER: {"Layer._flatten_layers": "e69c649cc5af", "Layer._flatten_modules": "f6e8b804cf48"}
}
_OWN_WEIGHTS: Known = {
    _LAYER: {"Layer.trainable_weights": "6f83b7617adc", "Layer.add_weight": "10e2b1e4e88a"}
}
"""Where Keras puts the weights of a layer, and reads them."""

_GRAPH_NETWORKS: Known = {
    "tf_keras.src.engine.functional": {"Functional._init_graph_network": "137dd7a8749f"},
    "tf_keras.src.engine.training": {"Model.__init__": "b57bc8ee45ae"},
}
"""Where Keras notes whether a model is one."""

_SYNCHRONIZED: Known = {
    _NORMALIZATION: {
        "BatchNormalizationBase.__init__": "f17dc4e1770c",
        "BatchNormalizationBase.call": "21ff31ad7975",
        "BatchNormalizationBase._calculate_mean_and_var": "6d739107eeb7",
    }
}
"""What `synchronized` is noted by, and read for."""

_METRICS: Known = {
    "tf_keras.src.metrics.base_metric": {
        "Metric.__new__": "e8fe0ab7bd2c",
        "Metric.__call__": "cbdf0184839a",
    },
    "tf_keras.src.engine.compile_utils": {"MetricsContainer.update_state": "905a57836ada"},
}
"""What puts `update_state` into a metric, and what calls it."""


def logits_of(probabilities: tf.Tensor) -> tf.Tensor | None:
    """Returns what a sigmoid or a softmax was computed from; None if neither has computed it.

    Reads `_keras_logits`, by which Keras's cross-entropy goes as well. The public way is a model
    that gives logits, which would have to be exported as another one. Refuses where Keras is
    another one: of float32 probabilities near 0 and 1 little is left to learn by.

    Args:
      probabilities: of a model.

    Raises:
      InternalError: Keras leaves them in another way, or not at all.
    """
    require_known(_LOGITS, "a loss of weighed classes")
    return getattr(probabilities, "_keras_logits", None)


def layers_within(model: tf_keras.Model) -> list[tf_keras.layers.Layer]:
    """Returns all layers of a model, those that are parts of others too, each after what it is in.

    Calls `Layer._flatten_layers`. The public `submodules` have layers that compute nothing as well,
    such as the one that Bidirectional copies, and come in another order, by which masks that are
    backed up would go to other weights. Refuses where Keras is another one.

    Raises:
      InternalError: Keras goes through layers in another way.
    """
    require_known(_LAYERS_WITHIN, "optimize.prune")
    return list(model._flatten_layers(include_self=False, recursive=True))


def own_weights(layer: tf_keras.layers.Layer) -> list[tf.Variable]:
    """Returns the weights that a layer learns, without those of the layers in it.

    Reads `Layer._trainable_weights`; the public `trainable_weights` are those of all. Refuses where
    Keras is another one, as weights would be overlooked.

    Raises:
      InternalError: Keras keeps the weights of layers in another way.
    """
    require_known(_OWN_WEIGHTS, "optimize.prune")
    return list(layer._trainable_weights)


def is_graph_network(model: tf_keras.Model) -> bool:
    """Whether a model is a graph of layers, functional or Sequential, and not code of its class.

    Reads `_is_graph_network`, as tensorflow-model-optimization does before it clones a model; the
    class by which it could be asked for is not public. Refuses where Keras is another one: models
    would be refused that can be quantised.

    Raises:
      InternalError: Keras notes it in another way.
    """
    require_known(_GRAPH_NETWORKS, "optimize.quantize")
    return bool(model._is_graph_network)


def synchronize(layer: tf_keras.layers.BatchNormalization) -> None:
    """Makes a layer normalise by the statistics of all replicas, before its first call.

    Sets what `synchronized=True` would have set; the constructors of tf_keras.applications, which
    make the layers, have no such option. Refuses where Keras is another one: each replica would
    normalise by its own statistics.

    Raises:
      InternalError: Keras goes by something else.
    """
    require_known(_SYNCHRONIZED, "model.sync_batch_norm")
    layer.synchronized, layer.fused = True, False


def change_compared(
    metric: tf_keras.metrics.Metric,
    change: Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
) -> tf_keras.metrics.Metric:
    """Has a metric compare other labels and predictions than it is given.

    Replaces `update_state` of this one object, as Keras's `Metric.__new__` does. The public way is
    a subclass, which a saved model would name, and nobody could load. Refuses where Keras is
    another one: what is not changed might be compared.

    Args:
      metric: not used yet.
      change: from labels and predictions to those that are compared.

    Returns:
      The metric.

    Raises:
      InternalError: Keras calls metrics in another way.
    """
    require_known(_METRICS, "the metrics of a training")
    update = metric.update_state

    def update_state(y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: Any = None) -> Any:
        return update(*change(y_true, y_pred), sample_weight)

    metric.update_state = update_state
    return metric
