"""Datasets in the installed packages, so that the first run needs no download."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

DIGITS_SIDE = 8
DIGITS_LEVELS = 16
"""The largest value of a pixel; the smallest is 0."""


@dataclass(frozen=True)
class BuiltinData:
    """A dataset of an installed package."""

    format: str
    """The name of the format, as in `data.format`."""
    locate: Callable[[Path], Path]
    """A function that takes a cache folder and returns the path of the dataset. If the package has
    no usable files, the function first writes them to the cache folder."""


def _package_folder(package: str) -> Path:
    """Returns the folder of an installed package without importing the package."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"The package {package} is not installed.")
    return Path(spec.origin).parent


def _locate_digits(cache: Path) -> Path:
    """Returns a folder with the 1,797 digits of scikit-learn as PNG files.

    The first call writes the files to the cache folder.
    """
    target = cache / "digits"
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=cache, prefix=".digits-"))
    try:
        _write_digits(scratch)
        scratch.chmod(0o755)
        scratch.rename(target)
    except OSError:
        # Another run may have created the folder at the same time, with the same files.
        if not target.is_dir():
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def _write_digits(folder: Path) -> None:
    from PIL import Image

    source = _package_folder("sklearn") / "datasets" / "data" / "digits.csv.gz"
    with gzip.open(source, "rt", newline="") as lines:
        for number, row in enumerate(csv.reader(lines)):
            *pixels, label = (int(float(cell)) for cell in row)
            grey = bytes(pixel * 255 // DIGITS_LEVELS for pixel in pixels)
            image = Image.frombytes("L", (DIGITS_SIDE, DIGITS_SIDE), grey)
            (folder / str(label)).mkdir(exist_ok=True)
            image.save(folder / str(label) / f"{number:04d}.png")


def _in_tfx(path: str) -> Callable[[Path], Path]:
    """Returns a function that returns the path of an example in the TFX wheel."""
    return lambda _: _package_folder("tfx") / "examples" / path


BUILTIN_DATA = {
    "digits": BuiltinData("images", _locate_digits),
    "reviews": BuiltinData("csv", _in_tfx("imdb/data/imdb_small_with_labels.txt")),
    "taxi": BuiltinData("csv", _in_tfx("chicago_taxi_pipeline/data/big_tipper_label/data.csv")),
}
"""The datasets by name: 1,797 digits of scikit-learn, and 100 film reviews and 15,002 Chicago taxi
trips of TFX."""
