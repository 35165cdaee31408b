"""Files of weights, opened for their numbers alone: no code, config or object in one is read."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import tensorflow as tf

from trainer_module.errors import TrainingError
from trainer_module.models.pretrained.formats import HDF5, WEIGHTS_IN_KERAS, check_format
from trainer_module.scratch import ScratchFolder


@contextmanager
def open_weights(path: str) -> Iterator[h5py.Group]:
    """The HDF5 file at a path, or in the .keras archive there; also on gs://.

    Raises:
      TrainingError: it is missing, cut short, a pickle, or of another format.
    """
    with _local(path) as file, _unpacked(file, path) as content:
        try:
            opened = h5py.File(content, "r")
        except OSError as error:
            raise TrainingError(
                f"model.weights: {path} is damaged, {_told(error)}; fetch it once more."
            ) from error
        with opened:
            yield opened


@contextmanager
def _local(path: str) -> Iterator[Path]:
    if "://" not in path:
        yield Path(path)
        return
    with ScratchFolder() as scratch:
        copy = Path(scratch) / "weights"
        try:
            tf.io.gfile.copy(path, str(copy))
        except tf.errors.OpError as error:
            raise TrainingError(f"model.weights: {path} cannot be read: {error.message}") from error
        yield copy


@contextmanager
def _unpacked(file: Path, path: str) -> Iterator[Any]:
    """What h5py opens: the file itself, or the member of an archive."""
    if check_format(file, path) == HDF5:
        yield file
        return
    with zipfile.ZipFile(file) as archive:
        yield io.BytesIO(archive.read(WEIGHTS_IN_KERAS))


def _told(error: Exception) -> str:
    """What HDF5 says, without what it was doing."""
    told = str(error)
    return told[told.find("(") + 1 : -1] if told.endswith(")") and "(" in told else told
