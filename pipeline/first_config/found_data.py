"""The data at a path: its format, its files, and the keys of `data` that read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from components.example_gen.formats import FORMATS
from pipeline.config.sections.data import EVAL_SPLIT, TRAIN_SPLIT

TRAIN_WORDS = ("train", "training")
EVAL_WORDS = ("eval", "evaluation", "val", "valid", "validation", "dev", "test", "testing")
"""The names of files and folders that mean a split, the preferred ones first."""


@dataclass(frozen=True)
class FoundData:
    """The data at a path."""

    format: str
    path: str
    """The value of `data.path`."""
    files: tuple[str, ...]
    """The local files to look at; of pictures, none."""
    splits: Mapping[str, str] = field(default_factory=dict)
    """The glob of each split, or an empty mapping for a random split."""
    features: Mapping[str, Any] = field(default_factory=dict)
    """The features that the files determine, such as pictures by path."""
    table: str = ""
    """The content of a table to write at `path`, or an empty string."""
    notes: tuple[str, ...] = ()
    """Sentences about what was found."""
    classes: int = 0
    """The number of classes of pictures in folders, or 0 if it is not known."""
    pictures: int = 0
    """The number of pictures in folders, or 0 if it is not known."""

    @property
    def holds_images(self) -> bool:
        """Whether each example is an image and its class."""
        return FORMATS[self.format].holds_images


def find_splits(names: Mapping[str, str]) -> dict[str, str]:
    """Returns the glob of each split, or an empty dict if the names are not those of splits.

    Args:
      names: the globs by the first word of the names of files or folders, in lower case.
    """
    train = next((names[word] for word in TRAIN_WORDS if word in names), None)
    others = [names[word] for word in EVAL_WORDS if word in names]
    if train is None or not others:
        return {}
    test = {"test": others[1]} if len(others) > 1 else {}
    return {TRAIN_SPLIT: train, EVAL_SPLIT: others[0], **test}
