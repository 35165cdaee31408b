"""Images in one folder per class: files as the model's graph decodes them, and their folder."""

from __future__ import annotations

import posixpath
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import tensorflow as tf

from components.example_gen.columns.encoded import Cell, ColumnKind, single_values
from components.example_gen.files.images import (
    broken_image_error,
    is_left_behind,
    is_litter,
    is_picture,
    select_images,
)
from components.example_gen.files.opening import unreadable_error
from components.example_gen.formats import IMAGE_FEATURE, OnBadFile
from components.example_gen.notes import FileNotes, left_out
from components.example_gen.sources.base import Batch, Files, Source
from components.example_gen.sources.pictures.decoding import make_decodable
from trainer_module.errors import DataError

# One shard each; small enough to keep all workers busy, large enough for few files.
_GROUP_FILES = 512
# Images held in memory at a time.
_BATCH_FILES = 128
_THREADS = 8


class ImagesSource(Source):
    """Reads picture files; each becomes what the model's graph decodes as it looks."""

    def plan(self, files: Sequence[str]) -> list[Files]:
        """Groups of images, each of all classes; files of other types are left out."""
        images = select_images(files)
        # Sorted by class they would train badly; the same order always, so runs can be compared.
        random.Random(0).shuffle(images)  # noqa: S311 - no secret
        groups = -(-len(images) // _GROUP_FILES)
        return [tuple(images[group::groups]) for group in range(groups)]

    def look_over(self, pattern: str, files: Sequence[str]) -> list[str]:
        """Notes on files that are no pictures, folders within folders and classes without one."""
        from tfx.dsl.io import fileio

        others = [file for file in files if not is_picture(file) and not is_left_behind(file)]
        folders = [file for file in others if fileio.isdir(file)]
        filled = {posixpath.dirname(file) for file in files if is_picture(file)}
        classes = [path for path in fileio.glob(posixpath.dirname(pattern)) if not is_litter(path)]
        empty = [path for path in classes if path not in filled and fileio.isdir(path)]
        strays = sorted(set(others) - set(folders))
        return [
            *left_out(strays, "file", "without a picture's extension"),
            *left_out(folders, "folder", "within class folders, which are not read"),
            *left_out(empty, "class folder", "without a picture"),
        ]

    def read(self, files: Files, kinds: dict[str, ColumnKind]) -> Iterator[Batch]:
        """Yields the images of a group."""
        del kinds
        with ThreadPoolExecutor(_THREADS) as pool:
            for start in range(0, len(files), _BATCH_FILES):
                batch = files[start : start + _BATCH_FILES]
                read = list(pool.map(self._read, batch))
                notes = FileNotes()
                for _, file_notes in read:
                    notes.add(file_notes)
                good = [
                    (image, posixpath.basename(posixpath.dirname(file)).encode())
                    for file, (image, _) in zip(batch, read, strict=True)
                    if image is not None
                ]
                images, classes = [image for image, _ in good], [name for _, name in good]
                yield Batch(
                    image_rows(images, pa.array(classes, pa.binary()), self._settings.label),
                    Cell(posixpath.dirname(batch[0]), start + 1),
                    notes=notes,
                )

    def _read(self, file: str) -> tuple[bytes | None, FileNotes]:
        """A file as an example holds it, if it can be one, and what became of it."""
        try:
            data = tf.io.read_file(file).numpy()
        except tf.errors.OpError as error:
            raise unreadable_error(file, error) from None
        notes = FileNotes()
        try:
            picture = make_decodable(data, self._settings.max_pixels)
        except DataError as error:
            if self._settings.on_bad_file is OnBadFile.SKIP:
                notes.add_broken(f"{file} ({error})")
                return None, notes
            raise broken_image_error(file, str(error), self._settings.on_bad_file) from None
        if picture.converted_from is not None:
            notes.converted[picture.converted_from] += 1
        return picture.encoded, notes


def image_rows(images: Sequence[bytes], labels: pa.Array, label: str) -> pa.RecordBatch:
    """Encoded images and their labels, binary or int64, as a batch's rows."""
    columns = [single_values(pa.array(images, pa.binary())), single_values(labels)]
    return pa.record_batch(columns, [IMAGE_FEATURE, label])
