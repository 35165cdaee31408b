"""The variant that answers in place of a version's network."""

from __future__ import annotations

from pathlib import Path

from components.pusher.variants import find_variant
from trainer_module.errors import DataError
from trainer_module.export.interface import ModelInterface
from trainer_module.export.variants.running import RunnableVariant, open_variant
from trainer_module.machine import count_cores


def open_named(version: Path, name: str, interface: ModelInterface) -> RunnableVariant:
    """Loads a variant, which has to name the classes that the version does, in their order.

    Args:
      version: its folder.
      name: of the variant.
      interface: of the version.

    Raises:
      ConfigError: the version has no such variant.
      DataError: it is damaged, names other classes, or its runtime is not there.
    """
    opened = open_variant(find_variant(version, name), count_cores())
    classes = opened.variant.classes
    if classes and interface.classes and tuple(classes) != tuple(interface.classes):
        raise DataError(
            f"the variant {name} of {version} names the classes {', '.join(classes)}, and the"
            f" version {', '.join(interface.classes)}: push it again."
        )
    return opened
