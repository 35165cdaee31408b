"""IDX files give the features of pictures in folders, and damaged files are refused."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

PIXELS = np.arange(30 * 4 * 5, dtype=np.uint8).reshape(30, 4, 5)
LABELS = np.arange(30, dtype=np.uint8) % 3


def idx(magic: int, array: np.ndarray) -> bytes:
    """An IDX file's bytes."""
    return struct.pack(f">{1 + array.ndim}I", magic, *array.shape) + array.tobytes()


def write_pair(folder: Path, images: bytes | None = None, labels: bytes | None = None) -> None:
    """Writes a pair of IDX files, good ones where no bytes are given."""
    images = idx(0x803, PIXELS) if images is None else images
    labels = idx(0x801, LABELS) if labels is None else labels
    (folder / "train-images-idx3-ubyte").write_bytes(images)
    (folder / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))


def test_idx_pairs_become_png_images_with_integer_labels(tmp_path, read_rows):
    write_pair(tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(0x803, PIXELS[:2])))
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(0x801, LABELS[:2]))
    rows = read_rows(tmp_path, "idx", label="digit")
    assert [row["digit"][0] for row in rows] == [0, 1, *LABELS.tolist()]
    for row, pixels in zip(rows, [*PIXELS[:2], *PIXELS], strict=True):
        decoded = tf.io.decode_png(row["image"][0]).numpy()
        np.testing.assert_array_equal(decoded[..., 0], pixels)
        assert decoded.shape == (4, 5, 1)


def test_idx_blocks_are_read_in_order(tmp_path, read_rows):
    labels = np.arange(2500).astype(np.uint8)
    write_pair(tmp_path, idx(0x803, labels.reshape(-1, 1, 1)), idx(0x801, labels))
    rows = read_rows(tmp_path, "idx")
    assert [row["label"][0] for row in rows] == labels.tolist()
    assert all(
        tf.io.decode_png(row["image"][0]).numpy().item() == row["label"][0] for row in rows[::500]
    )


@pytest.mark.parametrize(
    ("images", "labels", "words"),
    [
        (
            idx(0xD03, PIXELS),
            None,
            [
                "train-images-idx3-ubyte",
                "0x00000d03",
            ],
        ),
        (idx(0x803, PIXELS)[:-7], None, ["609 bytes", "616 bytes"]),
        (None, idx(0x801, LABELS)[:-1], ["37 bytes", "38"]),
        (
            None,
            idx(0x801, LABELS[1:]),
            ["30 images", "29 labels"],
        ),
    ],
)
def test_damaged_idx_files_are_refused(tmp_path, read_error, images, labels, words):
    write_pair(tmp_path, images, labels)
    message = read_error(tmp_path, "idx")
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("missing", "kind"),
    [
        ("train-images-idx3-ubyte", "image"),
    ],
)
def test_idx_file_without_its_pair_is_refused(tmp_path, read_error, missing, kind):
    write_pair(tmp_path)
    (tmp_path / missing).unlink()
    assert f"no {kind} file" in read_error(tmp_path, "idx")
