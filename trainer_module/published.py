"""The names and files of published weights: Keras's ImageNet networks and the BERTs of Hugging
Face.

A name stands for files in the cache of the library that downloads them (Keras or huggingface_hub).
This module does not use the network.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from trainer_module.errors import DataError

IMAGENET = "imagenet"
"""The name of the weights that Keras publishes for each of its networks."""

HUB_SCHEME = "hf://"
"""The prefix that marks a hub model with an owner: hf://dmis-lab/biobert-v1.1."""

HUB_PACKAGE = "huggingface_hub"

_STORAGE = "https://storage.googleapis.com/"
_HUB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_OWNED_NAME = re.compile(rf"(?:{_HUB_NAME.pattern}/)?{_HUB_NAME.pattern}")


@dataclass(frozen=True)
class PublishedFile:
    """A file that Keras publishes."""

    name: str
    """The name of the file, also in Keras's cache."""
    folder: str
    """The address of the file without its name."""
    md5: str

    @property
    def address(self) -> str:
        """The address that Keras downloads the file from."""
        return self.folder + self.name


_EFFICIENTNETS = {
    "efficientnet_b0": ("902e53a9f72be733fc0bcb005b3ebbac", "50bc09e76180e00e4465e1a485ddc09d"),
    "efficientnet_b1": ("1d254153d4ab51201f1646940f018540", "74c4e6b3e1f6a1eea24c589628592432"),
    "efficientnet_b2": ("b15cce36ff4dcbd00b6dd88e7857a6ad", "111f8e2ac8aa800a7a99e3239f7bfb39"),
    "efficientnet_b3": ("ffd1fdc53d0ce67064dc6a9c7960ede0", "af6d107764bb5b1abb91932881670226"),
    "efficientnet_b4": ("18c95ad55216b8f92d7e70b3a046e2fc", "ebc24e6d6c33eaebbd558eafbeedf1ba"),
    "efficientnet_b5": ("ace28f2a6363774853a83a0b21b9421a", "38879255a25d3c92d5e44e04ae6cec6f"),
    "efficientnet_b6": ("165f6e37dce68623721b423839de8be5", "9ecce42647a20130c1f39a5d4cb75743"),
    "efficientnet_b7": ("8c03f828fec3ef71311cd463b6759d99", "cbcfe4450ddf6f3ad90b1b398090fe4a"),
}
_KERAS = f"{_STORAGE}tensorflow/keras-applications/"
_ORDER = "_weights_tf_dim_ordering_tf_kernels"
_LARGE, _SMALL = (f"weights_mobilenet_v3_{size}_224_1.0_float" for size in ("large", "small"))


def _pair(
    folder: str, names: tuple[str, str], hashes: tuple[str, str]
) -> tuple[PublishedFile, PublishedFile]:
    with_head, without_head = (
        PublishedFile(n, folder, md5) for n, md5 in zip(names, hashes, strict=True)
    )
    return with_head, without_head


PUBLISHED: dict[str, tuple[PublishedFile, PublishedFile]] = {
    "resnet50": _pair(
        f"{_KERAS}resnet/",
        (f"resnet50{_ORDER}.h5", f"resnet50{_ORDER}_notop.h5"),
        ("2cb95161c43110f7111970584f804107", "4d473c1dd8becc155b73f8504c6f6626"),
    ),
    **{
        kind: _pair(
            f"{_STORAGE}keras-applications/",
            (f"{kind.replace('_', '')}.h5", f"{kind.replace('_', '')}_notop.h5"),
            hashes,
        )
        for kind, hashes in _EFFICIENTNETS.items()
    },
    "vgg16": _pair(
        f"{_KERAS}vgg16/",
        (f"vgg16{_ORDER}.h5", f"vgg16{_ORDER}_notop.h5"),
        ("64373286793e3c8b2b4e3219cbf3544b", "6d6bbae143d832006294945121d1f1fc"),
    ),
    "mobilenet_v3": _pair(
        f"{_KERAS}mobilenet_v3/",
        (f"{_LARGE}.h5", f"{_LARGE}_no_top_v2.h5"),
        ("59e551e166be033d707958cf9e29a6a7", "07fb09a5933dd0c8eaafa16978110389"),
    ),
    "mobilenet_v3_small": _pair(
        f"{_KERAS}mobilenet_v3/",
        (f"{_SMALL}.h5", f"{_SMALL}_no_top_v2.h5"),
        ("8768d4c2e7dee89b9d02b2d03d65d862", "d3e8ec802a04aa4fc771ee12a9a9b836"),
    ),
}
"""The files of each kind of model, with and without the ImageNet classifier head."""


CLASS_INDEX = PublishedFile(
    "imagenet_class_index.json",
    f"{_STORAGE}download.tensorflow.org/data/",
    "c2c37ea517e94d9795004a39431a14cb",
)
"""The file with the names of the ImageNet classes."""
IMAGENET_CLASSES = 1000


def keras_cache() -> Path:
    """Returns the folder in which Keras stores downloaded weights."""
    home = os.environ.get("KERAS_HOME") or os.path.join(os.path.expanduser("~"), ".keras")
    return Path(home) / "models"


def hub_name(weights: str) -> str | None:
    """Returns the name of a hub model, or None if the weights are a path or `imagenet`.

    Args:
      weights: the value of `model.weights` in the config.
    """
    if weights.startswith(HUB_SCHEME):
        name = weights.removeprefix(HUB_SCHEME)
        return name if _OWNED_NAME.fullmatch(name) else None
    is_name = weights != IMAGENET and _HUB_NAME.fullmatch(weights) and not Path(weights).exists()
    return weights if is_name else None


def is_named(kind: str, weights: str | None) -> bool:
    """Returns whether `model.weights` is the name of published weights instead of a path."""
    if kind in PUBLISHED:
        return weights == IMAGENET
    return kind == "bert" and weights is not None and hub_name(weights) is not None


def has_hub_client() -> bool:
    """Returns whether the package huggingface_hub is installed."""
    return find_spec(HUB_PACKAGE) is not None


def hub_folder(name: str) -> Path | None:
    """Returns the folder of a model in the hub's cache, or None if the cache does not contain the
    model.
    """
    if not has_hub_client():
        return None
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(name, "config.json")
    return Path(cached).parent if isinstance(cached, str) else None


def local_folder(weights: str) -> str:
    """Returns the folder of a hub model in the cache; returns other weights unchanged."""
    name = hub_name(weights)
    cached = hub_folder(name) if name else None
    return str(cached) if cached else weights


def local_weights(kind: str, weights: str, with_top: bool = False) -> str:
    """Returns the file or folder that `model.weights` stands for; it may not exist before a
    download.

    Args:
      kind: the kind of the model.
      weights: the value of `model.weights` in the config.
      with_top: whether the network includes the ImageNet classifier head.
    """
    if kind in PUBLISHED:
        if weights != IMAGENET:
            return weights
        return str(keras_cache() / imagenet_file(kind, with_top).name)
    return local_folder(weights)


def imagenet_file(kind: str, with_top: bool) -> PublishedFile:
    """Returns the file with a network's ImageNet weights, with or without the classifier head."""
    with_head, without_head = PUBLISHED[kind]
    return with_head if with_top else without_head


def class_index() -> Path:
    """Returns the path of the file with ImageNet's class names; the file may not exist yet."""
    return keras_cache() / CLASS_INDEX.name


def imagenet_classes() -> tuple[str, ...]:
    """Returns the names of the ImageNet classes by index, such as `tabby`.

    If two classes share a name, such as `crane` (a bird and a machine), each name ends in its
    WordNet number: `crane_n02012849`.

    Raises:
      DataError: the file is missing or damaged.
    """
    path = class_index()
    try:
        content = json.loads(path.read_text())
        numbered = [tuple(content[str(index)]) for index in range(IMAGENET_CLASSES)]
        counts = Counter(name for _, name in numbered)
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}); the next run downloads it."
        ) from None
    except (KeyError, TypeError, ValueError):
        raise DataError(
            f"{path} does not hold the names of {IMAGENET_CLASSES:,} classes; delete the "
            f"file, and the next run downloads it from {CLASS_INDEX.address}."
        ) from None
    return tuple(f"{name}_{number}" if counts[name] > 1 else name for number, name in numbered)


def wrong_hashes(folder: Path) -> Iterator[tuple[Path, str, str]]:
    """Yields the files of a model in the hub's cache whose content differs from their hash.

    In the cache, a file of a model is a link to a file whose name is its hash: SHA-256 for large
    files, Git's SHA-1 for small files. Files that are not links have no hash and are not checked.

    Yields:
      The file, its actual hash and its expected hash.
    """
    for path in sorted(folder.iterdir()):
        blob = path.resolve()
        content = {64: b"", 40: f"blob {blob.stat().st_size}\0".encode()}.get(len(blob.name))
        if content is None or not re.fullmatch(r"[0-9a-f]+", blob.name):
            continue
        digest = hashlib.sha256() if len(blob.name) == 64 else hashlib.sha1(usedforsecurity=False)
        digest.update(content)
        with blob.open("rb") as file:
            while part := file.read(1 << 20):
                digest.update(part)
        if digest.hexdigest() != blob.name:
            yield path, digest.hexdigest(), blob.name
