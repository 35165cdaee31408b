"""The check of a weights file's format by its first bytes, before a run and without TensorFlow."""

from __future__ import annotations

import zipfile
from pathlib import Path

from trainer_module.errors import TrainingError

HDF5, ZIP, PICKLE = b"\x89HDF\r\n\x1a\n", b"PK\x03\x04", b"\x80"
"""The first bytes of the formats. The second byte of a pickle is the version of its protocol."""

PICKLES_IN_ZIP = (".pkl", ".npy")
"""The endings of files that are or may be pickles, in archives of PyTorch and NumPy."""

WEIGHTS_IN_KERAS = "model.weights.h5"
"""The name of the weights' file in a .keras archive."""

EXPECTED = (
    "give a file of Keras's model.save_weights, such as resnet50.weights.h5, or a published .h5 "
    "file of Keras"
)


def check_format(file: Path, path: str) -> bytes:
    """Returns the format of a weights file, which is checked by its first bytes.

    Args:
      file: the path on this machine.
      path: the path in the config, for messages.

    Returns:
      `HDF5`, or `ZIP` for a .keras archive.

    Raises:
      TrainingError: the file cannot be read, or is neither an HDF5 file nor a .keras archive.
    """
    try:
        with file.open("rb") as opened:
            start = opened.read(8)
        names = zipfile.ZipFile(file).namelist() if start.startswith(ZIP) else []
    except zipfile.BadZipFile:
        raise TrainingError(
            f"model.weights: {path} is damaged: the end of the archive is missing; download the "
            "file again."
        ) from None
    except OSError as error:
        raise TrainingError(f"model.weights: {path} cannot be read: {error.strerror}.") from None
    is_pickle = start[:1] == PICKLE and start[1:2] <= b"\x05"
    if is_pickle or any(name.endswith(PICKLES_IN_ZIP) for name in names):
        raise TrainingError(
            f"model.weights: {path} is a pickle; pickles are rejected, as reading a pickle can run "
            f"any code; {EXPECTED}."
        )
    if start != HDF5 and WEIGHTS_IN_KERAS not in names:
        raise TrainingError(
            f"model.weights: {path} is not a file of weights: it begins with {start!r}; {EXPECTED}."
        )
    return HDF5 if start == HDF5 else ZIP
