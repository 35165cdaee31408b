"""What example generation is told, and the registry of formats; free of TensorFlow and TFX."""

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
        raise ValueError('right is one sign of ASCII, such as ";" or "\\t" for a tab')
    return text


def _encoding(name: str) -> str:
    try:
        codecs.lookup(name)
    except LookupError:
        raise ValueError("right is an encoding that Python knows, such as cp1252") from None
    return name


class CsvSettings(Settings):
    """How CSV files are written, where looking at them does not tell; each file is looked at."""

    delimiter: Annotated[str, AfterValidator(_sign)] | None = None
    """What stands between cells; default: a comma, semicolon, tab or bar, whichever fits."""
    encoding: Annotated[str, AfterValidator(_encoding)] | None = None
    """Such as cp1252; default: by the byte order mark, else UTF-8 if it is that, else cp1252."""
    header: list[str] | None = Field(default=None, min_length=1)
    """The columns' names, in order, of files whose first row is data."""
    quote: Annotated[str, AfterValidator(_sign)] | None = '"'
    """What stands around cells that hold delimiters or line ends; null: nothing does."""
    decimal: Literal[".", ","] = "."
    """What stands before the decimals of a number."""
    missing_values: list[str] = []
    """Cells that mean a missing value, such as NA, besides empty ones."""
    strip: bool = True
    """Whether spaces around cells and names of columns are taken away."""


class LabelsSettings(Settings):
    """Files of labels."""

    path: str = Field(min_length=1)
    """A file, folder or glob of CSV, JSON lines or Parquet, with a column of the label's name."""
    key: str = Field(min_length=1)
    """The column that is in the data and in these files, such as `request_id` of what `serve
    --log-requests` writes. Of several labels of a key the last one counts."""


# The feature that holds the encoded image, of formats that hold images.
IMAGE_FEATURE = "image"


@dataclass(frozen=True)
class FormatSpec:
    """What has to be known of a format before its source is imported."""

    source: str
    """Import path of the `Source` that reads it; empty where there are no files."""
    pattern: str = "*"
    """The glob of its files in a folder."""
    endings: tuple[str, ...] = ()
    """Those of its files' names that tell it, in small letters; `.gz` may follow."""
    has_files: bool = True
    """Whether `data.path` leads to files; else a family of tasks knows what it names."""
    holds_images: bool = False
    """Whether an example is an image, as `IMAGE_FEATURE`, and its class."""
    has_file_per_example: bool = False
    """Whether one broken file is one example, that can be left out."""
    names_pictures: bool = False
    """Whether a column may hold the paths of pictures."""
    holds_bytes: bool = True
    """Whether a value may be any bytes, such as an encoded picture."""
    guesses_types: bool = False
    """Whether types follow from the values alone, so that a schema has to keep them on days when
    the values would also do as something simpler."""
    may_lack_columns: bool = False
    """Whether a file need not have all columns, as it names them anew in each row."""
    first_look: str = ""
    """Import path of what looks at local files before TFX is imported; takes settings and files,
    and gives the names of the columns."""
    holds_rows: str = ""
    """Import path of what finds out whether a file that is not empty holds a row; takes its path
    and how CSV files are written."""


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
        first_look=f"{_FIRST_LOOK}.look_at_table",
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
        first_look=f"{_FIRST_LOOK}.look_at_table",
        holds_rows=f"{_FIRST_LOOK}.text_holds_lines",
    ),
    "parquet": FormatSpec(
        f"{_SOURCES}.parquet_source.ParquetSource",
        "*.parquet",
        endings=(".parquet",),
        names_pictures=True,
        first_look=f"{_FIRST_LOOK}.look_at_table",
        holds_rows=f"{_FIRST_LOOK}.parquet_holds_rows",
    ),
    "images": FormatSpec(
        f"{_SOURCES}.pictures.ImagesSource",
        "*/*",
        holds_images=True,
        has_file_per_example=True,
        first_look=f"{_FIRST_LOOK}.look_at_images",
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
    """Returns the format that the ending of a file's name tells; None if it tells none."""
    ending = posixpath.splitext(file.lower().removesuffix(".gz"))[1]
    return next((name for name, spec in FORMATS.items() if ending in spec.endings), None)


DataFormat: TypeAlias = Annotated[
    str, RegisteredName(FORMATS, "DataFormat", "The formats that examples are read from.")
]
"""A name in `FORMATS`."""


class OnBadFile(StrEnum):
    """What a file that cannot be read does."""

    FAIL = "fail"
    SKIP = "skip"


class Unlabelled(StrEnum):
    """What a row without a label does."""

    FAIL = "fail"
    SKIP = "skip"


class ExampleGenSettings(Settings):
    """How the files are read and checked; part of the component's cache key."""

    format: DataFormat
    label: str
    """The column to predict; where the format holds images, the name that the label's feature
    gets."""
    target: TaskSettings = Field(alias="task")
    csv: CsvSettings = CsvSettings()
    """How CSV files are written."""
    weight: str = ""
    """The column of the examples' weights; empty where all count alike."""
    mixed_columns: tuple[str, ...] = ()
    """Columns that may hold numbers and text: declared categorical or ignored."""
    number_columns: tuple[str, ...] = ()
    """Columns that are declared numeric: zeros before a number say nothing."""
    features: dict[str, Feature] = {}
    """Columns of which the config declares a type that reads some forms of text alone."""
    pictures: dict[str, str] = {}
    """Columns that hold paths of pictures, and the folder that these begin in; empty for that of
    the file in which they are written."""
    pictures_revision: str = ""
    """Changes with those pictures."""
    encoded_pictures: tuple[str, ...] = ()
    """Columns that hold encoded pictures."""
    max_pixels: int = DATA_PIXELS
    """That a picture may have."""
    known_dates: dict[str, str] | None = None
    """The formats of columns that an earlier schema takes for dates; None where the data decides
    which are."""
    on_bad_file: OnBadFile | None = OnBadFile.FAIL
    """Whether a broken file ends the run, where one is one example; None where no config decides,
    as each file is a question of its own to a model."""
    unlabelled: Unlabelled = Unlabelled.FAIL
    """Whether a row without a label ends the run."""
    may_lack_label: bool = False
    """Whether rows without a label are all of one class: the task needs none, and none is named."""
    labels: LabelsSettings | None = None
    """Where the labels are, if not in the rows; the path is absolute."""
    labels_revision: str = ""
    """Changes with their files."""
    stratify: bool = False
    """Whether each class is split by itself."""
    order_by: str = ""
    """The column by whose order the rows are split."""
    split_by: str = ""
    """The column whose equal values go to the same split."""
    schema_file: str = ""
    """A schema, if it is there, whose types a column of a format that guesses them keeps."""
    schema_revision: str = ""
    """Changes when somebody edits that schema."""
    code: str = ""
    """Changes with the code that reads the files."""

    @property
    def task(self) -> Task:
        """What the label is."""
        return self.label_task.label_kind

    @property
    def label_task(self) -> BaseTask:
        """The task, where it is supervised; TypeError where it has no label."""
        return as_task(self.target)

    @property
    def format_spec(self) -> FormatSpec:
        """What is known of the format."""
        return FORMATS[self.format]

    @property
    def names(self) -> frozenset[str]:
        """Columns whose whole numbers are names or places: of classes, groups, an order."""
        label = self.label if self.task.is_classification else ""
        key = self.labels.key if self.labels else ""
        return frozenset({*self.mixed_columns, self.split_by, self.order_by, label, key} - {""})

    def are_numbers(self, column: str) -> bool:
        """Returns whether numbers in a column cannot be codes."""
        is_number = column == self.label and not self.task.is_classification
        return is_number or column in (*self.number_columns, self.weight, self.order_by)

    def keeps_words(self, column: str) -> bool:
        """Returns whether a word such as NA is a value among numbers, as one of a category or a
        class.
        """
        is_class = column == self.label and self.task.is_classification
        return is_class or column in self.mixed_columns

    @field_validator("label")
    @classmethod
    def _no_image(cls, label: str, info: ValidationInfo) -> str:
        spec = FORMATS.get(info.data.get("format", ""))
        if spec is not None and spec.holds_images and label == IMAGE_FEATURE:
            raise ValueError(f"must not be {IMAGE_FEATURE!r}, which is the image itself")
        return label
