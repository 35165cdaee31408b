"""The settings of example generation, and the registry of formats.

The module does not import TensorFlow or TFX.
"""

from __future__ import annotations

import codecs
import posixpath
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PositiveInt,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from trainer_module.features.pixels import DATA_PIXELS
from trainer_module.sections import RegisteredName, Settings
from trainer_module.settings import Feature, Task, TaskSettings
from trainer_module.settings.tasks import BaseTask, as_task


def _check_character(value: str) -> str:
    if len(value) != 1 or not value.isascii() or value in "\r\n":
        raise ValueError('expected one ASCII character, such as ";" or "\\t" for a tab')
    return value


_CHARACTER = WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 1})


def _check_encoding(name: str) -> str:
    try:
        codecs.lookup(name)
    except LookupError:
        raise ValueError("expected an encoding that Python supports, such as cp1252") from None
    return name


class CsvSettings(Settings):
    """The dialect of CSV files. An unset `delimiter` or `encoding` is detected for each file."""

    delimiter: Annotated[str, AfterValidator(_check_character), _CHARACTER] | None = None
    """The delimiter between cells; by default a comma, semicolon, tab or bar is detected."""
    encoding: Annotated[str, AfterValidator(_check_encoding)] | None = None
    """The encoding, such as cp1252. By default the byte order mark determines the encoding. A file
    without a mark is read as UTF-8 if the file is valid UTF-8, and otherwise as cp1252."""
    header: list[str] | None = Field(default=None, min_length=1)
    """The names of the columns in order, for files without a header."""
    quote: Annotated[str, AfterValidator(_check_character), _CHARACTER] | None = '"'
    """The quotation mark around cells that contain delimiters or line ends; null if quotation marks
    have no special meaning."""
    decimal: Literal[".", ","] = "."
    """The decimal separator of numbers."""
    missing_values: list[str] = []
    """The values of cells that mean a missing value, such as NA, in addition to empty cells."""
    strip: bool = True
    """Whether to remove spaces around the values of cells and the names of columns."""


class LabelsSettings(Settings):
    """The files of labels that are joined to the data."""

    path: str = Field(min_length=1)
    """A file, folder or glob of CSV, JSON lines or Parquet files with the label's column."""
    key: str = Field(min_length=1)
    """The column by which labels are joined to rows, such as `request_id` in the files of
    `serve --log-requests`. Both the data and the files of labels contain the column. If several
    labels have the same key, the last label is used."""


def _as_columns(value: object) -> object:
    return [value] if isinstance(value, str) else value


class LagsSettings(Settings):
    """The past labels of a series that become columns: of one row for each time, or for each time
    and `key`. A list of numbers is short for `steps`.
    """

    steps: list[PositiveInt] = Field(min_length=1)
    """How long before a row its past labels are, in units of time. The smallest step is the
    horizon: a request must know the label of that time."""
    means: list[PositiveInt] = []
    """The lengths of moving averages, in units of time. An average ends at the horizon, and leaves
    out times without a label."""
    key: Annotated[
        list[str], BeforeValidator(_as_columns, json_schema_input_type=str | list[str])
    ] = []
    """The column, or the columns, that identify the series of a row, such as a store. Default: all
    rows are one series."""
    unit: Literal["minute", "hour", "day", "month"] = "day"
    """The unit of time, of which a series has at most one row. If `data.order_by` holds numbers
    other than dates such as 20260131, or months such as 202601 with `unit: month`, steps are
    differences of these numbers."""

    @field_validator("steps", "means")
    @classmethod
    def _check_distinct(cls, values: list[int]) -> list[int]:
        twice = sorted({value for value in values if values.count(value) > 1})
        if twice:
            raise ValueError(f"{twice[0]} is there twice; write it once")
        return values

    @property
    def horizon(self) -> int:
        """The smallest step, in units of time."""
        return min(self.steps)

    def windows(self, label: str) -> dict[str, tuple[int, int]]:
        """Returns the first and the last time before a row of which each column is the mean, in
        units of time, by the column's name.
        """
        lags = {f"{label}_lag_{step}": (step, step) for step in self.steps}
        last = self.horizon
        means = {f"{label}_mean_{n}": (last + n - 1, last) for n in self.means}
        return lags | means


# The feature with the encoded image, in formats of images.
IMAGE_FEATURE = "image"


@dataclass(frozen=True)
class FormatSpec:
    """The properties of a format that are needed before its source is imported."""

    source: str
    """The import path of the `Source` that reads the format, or an empty string if the format has
    no files.
    """
    pattern: str = "*"
    """The glob that selects the format's files in a folder."""
    endings: tuple[str, ...] = ()
    """The endings of file names in lower case that identify the format. `.gz` may follow."""
    has_files: bool = True
    """Whether `data.path` is the path of files. If not, the task's family interprets the path."""
    holds_images: bool = False
    """Whether an example consists of an image, the feature `IMAGE_FEATURE`, and its class."""
    has_file_per_example: bool = False
    """Whether each file is one example, so that the run can leave out a broken file."""
    names_pictures: bool = False
    """Whether a column may hold the paths of pictures."""
    holds_bytes: bool = True
    """Whether a value may contain any bytes, for instance an encoded picture."""
    guesses_types: bool = False
    """Whether the types of columns are inferred from their values alone. A schema then preserves
    the types for later data, whose values may fit a simpler type."""
    may_lack_columns: bool = False
    """Whether a file may lack some columns, because each row contains the names of its columns."""
    first_look: str = ""
    """The import path of the function that checks local files before TFX is imported. The function
    takes the settings, the files and the minimum number of rows, and returns the names of the
    columns."""
    description: str = ""
    """A sentence about the format, which editors show."""
    holds_rows: str = ""
    """The import path of the function that returns whether a file that is not empty has rows. The
    function takes the path and the `CsvSettings`."""


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
        description="Tables in text, also with other delimiters.",
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
        description="JSON lines, an object per row.",
    ),
    "parquet": FormatSpec(
        f"{_SOURCES}.parquet_source.ParquetSource",
        "*.parquet",
        endings=(".parquet",),
        names_pictures=True,
        first_look=f"{_FIRST_LOOK}.check_table",
        holds_rows=f"{_FIRST_LOOK}.parquet_holds_rows",
        description="Parquet files.",
    ),
    "images": FormatSpec(
        f"{_SOURCES}.pictures.ImagesSource",
        "*/*",
        holds_images=True,
        has_file_per_example=True,
        first_look=f"{_FIRST_LOOK}.check_images",
        description="Pictures in a folder for each class.",
    ),
    "idx": FormatSpec(
        f"{_SOURCES}.idx_source.IdxSource",
        holds_images=True,
        first_look=f"{_FIRST_LOOK}.check_idx",
        description="Pictures and labels in MNIST's format.",
    ),
    "tfrecord": FormatSpec(
        f"{_SOURCES}.tfrecord_source.TFRecordSource",
        endings=(".tfrecord", ".tfrecords"),
        holds_rows=f"{_FIRST_LOOK}.holds_bytes",
        description="Serialised `tf.Example`s.",
    ),
    "environment": FormatSpec(
        "", has_files=False, description="An environment in which a policy acts."
    ),
}
"""The formats that examples are read from, by the name in `data.format`."""


def format_by_name(file: str) -> str | None:
    """Returns the format of a file by the ending of its name, or None for an unknown ending."""
    ending = posixpath.splitext(file.lower().removesuffix(".gz"))[1]
    return next((name for name, spec in FORMATS.items() if ending in spec.endings), None)


DataFormat: TypeAlias = Annotated[
    str, RegisteredName(FORMATS, "DataFormat", "The formats that examples are read from.")
]
"""A name in `FORMATS`."""


class OnBadFile(StrEnum):
    """The handling of a file that cannot be read."""

    FAIL = "fail"
    """The run ends."""
    SKIP = "skip"
    """The file is left out, and a note names it."""


class Unlabelled(StrEnum):
    """The handling of a row without a label."""

    FAIL = "fail"
    """The run ends."""
    SKIP = "skip"
    """The row is left out, and a note reports the number of such rows."""


class ExampleGenSettings(Settings):
    """The settings for reading and checking the files, which are part of the cache key."""

    format: DataFormat
    label: str
    """The column to predict. In formats of images, it is the name of the feature of the class."""
    target: TaskSettings = Field(alias="task")
    """The settings of the task."""
    csv: CsvSettings = CsvSettings()
    """The dialect of CSV files."""
    weight: str = ""
    """The column of the examples' weights, or an empty string if all examples have the same weight.
    """
    mixed_columns: tuple[str, ...] = ()
    """The columns that are declared categorical or ignored, so that they may hold both numbers and
    text."""
    number_columns: tuple[str, ...] = ()
    """The columns that are declared numeric, so that leading zeros do not make them codes."""
    features: dict[str, Feature] = {}
    """The declared features of columns whose type accepts only certain notations."""
    pictures: dict[str, str] = {}
    """The columns that hold paths of pictures, with the folder that the paths are relative to. An
    empty string is the folder of the file that contains the column."""
    pictures_revision: str = ""
    """A fingerprint that changes when the pictures change."""
    encoded_pictures: tuple[str, ...] = ()
    """The columns that hold encoded pictures."""
    max_pixels: int = DATA_PIXELS
    """The maximum number of pixels of a picture."""
    known_dates: dict[str, str] | None = None
    """The formats of the columns that an earlier schema declares as dates. With None, dates are
    detected in the data."""
    on_bad_file: OnBadFile | None = OnBadFile.FAIL
    """The handling of a broken file in formats with one file per example; None outside a pipeline,
    where each file is a request."""
    unlabelled: Unlabelled = Unlabelled.FAIL
    """The handling of rows without a label."""
    may_lack_label: bool = False
    """Whether the task needs no label, so that rows without a label get the same class."""
    labels: LabelsSettings | None = None
    """The files of labels, if the rows do not contain their labels. The path is absolute."""
    labels_revision: str = ""
    """A fingerprint that changes when the files of labels change."""
    lags: LagsSettings | None = None
    """The past labels that become columns, or None."""
    stratify: bool = False
    """Whether the rows of each class are split separately."""
    order_by: str = ""
    """The column that orders the rows before they are split, or an empty string for no order."""
    split_by: str = ""
    """The column by which rows are grouped: rows with the same value are in the same split."""
    schema_file: str = ""
    """The path of the schema that preserves the types of columns. The file may not exist yet."""
    schema_revision: str = ""
    """A fingerprint that changes when `schema_file` changes."""
    code: str = ""
    """A fingerprint that changes when the code that reads the files changes."""

    @property
    def task(self) -> Task:
        """The label's kind of task, such as regression."""
        return self.label_task.label_kind

    @property
    def label_task(self) -> BaseTask:
        """The settings of a supervised task. For a task without a label, a TypeError is raised."""
        return as_task(self.target)

    @property
    def format_spec(self) -> FormatSpec:
        """The properties of the format."""
        return FORMATS[self.format]

    @property
    def exact_columns(self) -> frozenset[str]:
        """The columns whose integers must stay exact: classes, categories, groups, keys and the
        column that orders the rows.
        """
        label = self.label if self.task.is_classification else ""
        keys = [self.labels.key] if self.labels else []
        keys += self.lags.key if self.lags else []
        return frozenset({*self.mixed_columns, self.split_by, self.order_by, label, *keys} - {""})

    def is_numeric(self, column: str) -> bool:
        """Returns whether a column must be numeric, so that its numbers are never codes."""
        is_number = column == self.label and not self.task.is_classification
        return is_number or column in (*self.number_columns, self.weight, self.order_by)

    def keeps_placeholders(self, column: str) -> bool:
        """Returns whether NA is a category or class of a column, and not a missing number."""
        is_class = column == self.label and self.task.is_classification
        return is_class or column in self.mixed_columns

    @field_validator("label")
    @classmethod
    def _no_image(cls, label: str, info: ValidationInfo) -> str:
        spec = FORMATS.get(info.data.get("format", ""))
        if spec is not None and spec.holds_images and label == IMAGE_FEATURE:
            raise ValueError(
                f"must not be {IMAGE_FEATURE!r}, which is the name of the feature with the images"
            )
        return label
