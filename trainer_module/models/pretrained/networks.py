"""Which networks there are, and what has to be known of each before TensorFlow is imported."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Network:
    """One of tf_keras.applications, without its top: pictures in, a map of features out."""

    constructor: str
    """Its function there."""
    is_bgr: bool = False
    """Whether it takes blue, green and red less their means on ImageNet, as Caffe's models do; the
    others take 0..255, and scale within themselves."""
    least: int = 32
    """Pixels of height and of width."""


NETWORKS: dict[str, Network] = {
    "resnet50": Network("ResNet50", is_bgr=True),
    **{f"efficientnet_b{size}": Network(f"EfficientNetB{size}") for size in range(8)},
    "vgg16": Network("VGG16", is_bgr=True),
    "mobilenet_v3": Network("MobileNetV3Large"),
    "mobilenet_v3_small": Network("MobileNetV3Small"),
}
"""By the names in `model.kind`."""

IMAGENET_MEANS = (103.939, 116.779, 123.68)
"""Of blue, green and red, 0..255, as Caffe's models subtract them."""

IMAGENET_DEVIATIONS = (0.229, 0.224, 0.225)
"""Of red, green and blue, 0..1."""
