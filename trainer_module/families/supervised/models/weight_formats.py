"""The format of a weights file by its first bytes, checked without TensorFlow before a run."""

from __future__ import annotations

import zipfile
from pathlib import Path

from trainer_module.errors import TrainingError

HDF5, ZIP, PICKLE = b"\x89HDF\r\n\x1a\n", b"PK\x03\x04", b"\x80"
"""The first bytes of the formats; a pickle's next byte is the number of its protocol."""

PICKLES_IN_ZIP = (".pkl", ".npy")
"""The endings of pickles, or possible pickles, in the archives of PyTorch and NumPy."""

WEIGHTS_IN_KERAS = "model.weights.h5"
"""The file of weights in a .keras archive."""

EXPECTED = (
    "right is a file of Keras's model.save_weights, such as resnet50.weights.h5, or a published "
    ".h5 file of Keras"
)


def check_format(file: Path, path: str) -> bytes:
    """Checks the first bytes of a file, and the names in an archive.

    Args:
      file: the path on this machine.
      path: the path in the config, for messages.

    Returns:
      The first bytes of the format: `HDF5`, or `ZIP` for a .keras archive.

    Raises:
      TrainingError: the file cannot be read, or is neither an HDF5 file nor a .keras archive.
    """
    try:
        with file.open("rb") as opened:
            start = opened.read(8)
        names = zipfile.ZipFile(file).namelist() if start.startswith(ZIP) else []
    except zipfile.BadZipFile:
        raise TrainingError(
            f"model.weights: {path} is damaged: the archive has no end; download it again."
        ) from None
    except OSError as error:
        raise TrainingError(f"model.weights: {path} cannot be read: {error.strerror}.") from None
    is_pickle = start[:1] == PICKLE and start[1:2] <= b"\x05"
    if is_pickle or any(name.endswith(PICKLES_IN_ZIP) for name in names):
        raise TrainingError(
            f"model.weights: {path} is a pickle, which is rejected, as reading it may run any "
            f"code; {EXPECTED}."
        )
    if start != HDF5 and WEIGHTS_IN_KERAS not in names:
        raise TrainingError(
            f"model.weights: {path} is no file of weights: it begins with {start!r}; {EXPECTED}."
        )
    return HDF5 if start == HDF5 else ZIP
