"""The settings of example generation, and the registry of formats; free of TensorFlow and TFX."""

from __future__ import annotations

import codecs
import posixpath
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from trainer_module.features.pixels import DATA_PIXELS
from trainer_module.sections import RegisteredName, Settings
from trainer_module.settings import Feature, Task, TaskSettings
from trainer_module.settings.tasks import BaseTask, as_task


def _sign(text: str) -> str:
    if len(text) != 1 or not text.isascii() or text in "\r\n":
        raise ValueError('right is one ASCII character, such as ";" or "\\t" for a tab')
    return text


def _encoding(name: str) -> str:
    try:
        codecs.lookup(name)
    except LookupError:
        raise ValueError("right is an encoding that Python supports, such as cp1252") from None
    return name


class CsvSettings(Settings):
    """The dialect of CSV files, as far as it cannot be detected; it is detected for each file."""

    delimiter: Annotated[str, AfterValidator(_sign)] | None = None
    """The delimiter between cells; default: a comma, semicolon, tab or bar, whichever fits."""
    encoding: Annotated[str, AfterValidator(_encoding)] | None = None
    """The encoding, such as cp1252; default: that of the byte order mark, or UTF-8 if the file is
    valid UTF-8, or cp1252."""
    header: list[str] | None = Field(default=None, min_length=1)
    """The columns' names, in order, of files whose first row is data."""
    quote: Annotated[str, AfterValidator(_sign)] | None = '"'
    """The quotation mark around cells that contain delimiters or line ends; null: cells are never
    quoted."""
    decimal: Literal[".", ","] = "."
    """The decimal separator of numbers."""
    missing_values: list[str] = []
    """Cells that mean a missing value, such as NA, besides empty ones."""
    strip: bool = True
    """Whether to remove spaces around cells and names of columns."""


class LabelsSettings(Settings):
    """Files of labels that are joined to the data."""

    path: str = Field(min_length=1)
    """A file, folder or glob of CSV, JSON lines or Parquet, with a column of the label's name."""
    key: str = Field(min_length=1)
    """The column that is in the data and in these files, such as `request_id` in the files of
    `serve --log-requests`. Of several labels with the same key the last one counts."""


# The feature that holds the encoded image, of formats that hold images.
IMAGE_FEATURE = "image"


@dataclass(frozen=True)
class FormatSpec:
    """The properties of a format that are needed before its source is imported."""

    source: str
    """The import path of the `Source` that reads the format; empty if it has no files."""
    pattern: str = "*"
    """The glob of the format's files in a folder."""
    endings: tuple[str, ...] = ()
    """The endings of file names, in lower case, that identify the format; `.gz` may follow."""
    has_files: bool = True
    """Whether `data.path` leads to files; otherwise a family of tasks interprets it."""
    holds_images: bool = False
    """Whether an example is an image, as `IMAGE_FEATURE`, and its class."""
    has_file_per_example: bool = False
    """Whether each file is one example, so that a broken file can be left out."""
    names_pictures: bool = False
    """Whether a column may hold the paths of pictures."""
    holds_bytes: bool = True
    """Whether a value may be any bytes, such as an encoded picture."""
    guesses_types: bool = False
    """Whether types are inferred from the values alone. A schema then has to preserve them, as the
    values of one day may fit a simpler type."""
    may_lack_columns: bool = False
    """Whether a file may lack some columns, as each row names its own."""
    first_look: str = ""
    """The import path of the function that checks local files before TFX is imported; it takes
    settings and files, and returns the names of the columns."""
    holds_rows: str = ""
    """The import path of the function that returns whether a file that is not empty holds a row; it
    takes the path and the `CsvSettings`."""


_SOURCES = "components.example_gen.sources"
_FIRST_LOOK = "components.example_gen.first_look"
FORMATS: dict[str, FormatSpec] = {
    "csv": FormatSpec(
        f"{_SOURCES}.csv_source.CsvSource",
        "*.csv*",
        endings=(".csv", ".tsv"),
        names_pictures=True,
        holds_bytes=False,
        guesses_types=True,
        first_look=f"{_FIRST_LOOK}.check_table",
        holds_rows=f"{_FIRST_LOOK}.csv_holds_rows",
    ),
    "jsonl": FormatSpec(
        f"{_SOURCES}.jsonl_source.JsonlSource",
        "*.jsonl*",
        endings=(".jsonl", ".ndjson"),
        names_pictures=True,
        holds_bytes=False,
        guesses_types=True,
        may_lack_columns=True,
        first_look=f"{_FIRST_LOOK}.check_table",
        holds_rows=f"{_FIRST_LOOK}.text_holds_lines",
    ),
    "parquet": FormatSpec(
        f"{_SOURCES}.parquet_source.ParquetSource",
        "*.parquet",
        endings=(".parquet",),
        names_pictures=True,
        first_look=f"{_FIRST_LOOK}.check_table",
        holds_rows=f"{_FIRST_LOOK}.parquet_holds_rows",
    ),
    "images": FormatSpec(
        f"{_SOURCES}.pictures.ImagesSource",
        "*/*",
        holds_images=True,
        has_file_per_example=True,
        first_look=f"{_FIRST_LOOK}.check_images",
    ),
    "idx": FormatSpec(f"{_SOURCES}.idx_source.IdxSource", holds_images=True),
    "tfrecord": FormatSpec(
        f"{_SOURCES}.tfrecord_source.TFRecordSource",
        endings=(".tfrecord", ".tfrecords"),
        holds_rows=f"{_FIRST_LOOK}.holds_bytes",
    ),
    "environment": FormatSpec("", has_files=False),
}
"""The formats that examples are read from, by the name in `data.format`."""


def format_by_name(file: str) -> str | None:
    """Returns the format of a file by the ending of its name; None if the ending is unknown."""
    ending = posixpath.splitext(file.lower().removesuffix(".gz"))[1]
    return next((name for name, spec in FORMATS.items() if ending in spec.endings), None)


DataFormat: TypeAlias = Annotated[
    str, RegisteredName(FORMATS, "DataFormat", "The formats that examples are read from.")
]
"""A name in `FORMATS`."""


class OnBadFile(StrEnum):
    """The handling of a file that cannot be read."""

    FAIL = "fail"
    SKIP = "skip"


class Unlabelled(StrEnum):
    """The handling of a row without a label."""

    FAIL = "fail"
    SKIP = "skip"


class ExampleGenSettings(Settings):
    """The settings for reading and checking the files; part of the component's cache key."""

    format: DataFormat
    label: str
    """The column to predict; for formats of images, the name of the label's feature."""
    target: TaskSettings = Field(alias="task")
    csv: CsvSettings = CsvSettings()
    """The dialect of CSV files."""
    weight: str = ""
    """The column of the examples' weights; empty if all have the same weight."""
    mixed_columns: tuple[str, ...] = ()
    """The columns that may hold numbers and text, as they are declared categorical or ignored."""
    number_columns: tuple[str, ...] = ()
    """The columns that are declared numeric; leading zeros do not make them codes."""
    features: dict[str, Feature] = {}
    """The columns whose declared type accepts only certain notations of text."""
    pictures: dict[str, str] = {}
    """The columns that hold paths of pictures, and the folder that the paths are relative to; empty
    for the folder of the file that holds the column."""
    pictures_revision: str = ""
    """A fingerprint that changes with the pictures."""
    encoded_pictures: tuple[str, ...] = ()
    """The columns that hold encoded pictures."""
    max_pixels: int = DATA_PIXELS
    """The most pixels that a picture may have."""
    known_dates: dict[str, str] | None = None
    """The formats of the columns that an earlier schema declares as dates; None if the data decides
    which columns are dates."""
    on_bad_file: OnBadFile | None = OnBadFile.FAIL
    """Whether a broken file that is one example ends the run; None outside a pipeline, where each
    file is a request of its own."""
    unlabelled: Unlabelled = Unlabelled.FAIL
    """Whether a row without a label ends the run."""
    may_lack_label: bool = False
    """Whether all rows may lack a label, which gives them one class; for tasks without a label."""
    labels: LabelsSettings | None = None
    """The files of the labels, if these are not in the rows; the path is absolute."""
    labels_revision: str = ""
    """A fingerprint that changes with the files of labels."""
    stratify: bool = False
    """Whether each class is split by itself."""
    order_by: str = ""
    """The column by whose order the rows are split."""
    split_by: str = ""
    """The column whose equal values go to the same split."""
    schema_file: str = ""
    """The path of a schema, if it exists, that preserves the types of columns in formats that guess
    them."""
    schema_revision: str = ""
    """A fingerprint that changes with that schema."""
    code: str = ""
    """A fingerprint that changes with the code that reads the files."""

    @property
    def task(self) -> Task:
        """The kind of the label."""
        return self.label_task.label_kind

    @property
    def label_task(self) -> BaseTask:
        """The task, if it is supervised; raises TypeError if it has no label."""
        return as_task(self.target)

    @property
    def format_spec(self) -> FormatSpec:
        """The properties of the format."""
        return FORMATS[self.format]

    @property
    def names(self) -> frozenset[str]:
        """The columns whose integers are identifiers: of classes, groups or positions in an
        order.
        """
        label = self.label if self.task.is_classification else ""
        key = self.labels.key if self.labels else ""
        return frozenset({*self.mixed_columns, self.split_by, self.order_by, label, key} - {""})

    def are_numbers(self, column: str) -> bool:
        """Returns whether numbers in a column cannot be codes."""
        is_number = column == self.label and not self.task.is_classification
        return is_number or column in (*self.number_columns, self.weight, self.order_by)

    def keeps_words(self, column: str) -> bool:
        """Returns whether a word such as NA is a value of its own, as in a category or a class."""
        is_class = column == self.label and self.task.is_classification
        return is_class or column in self.mixed_columns

    @field_validator("label")
    @classmethod
    def _no_image(cls, label: str, info: ValidationInfo) -> str:
        spec = FORMATS.get(info.data.get("format", ""))
        if spec is not None and spec.holds_images and label == IMAGE_FEATURE:
            raise ValueError(
                f"must not be {IMAGE_FEATURE!r}, which is the name of the column of images"
            )
        return label
