"""The blocks of a page, such as tables and charts, which the macros of `blocks.html.j2` show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from pipeline.report.text import shorten

MAX_ROWS = 200
"""The maximum number of rows of a table; more would make a page slow."""


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    kind: str = ""
    """`good`, `bad`, `warn`, `muted`, or an empty string."""
    heat: float | None = None
    """The strength of the background between 0 and 1."""


@dataclass(frozen=True)
class Table:
    """A table. The first column names the rows."""

    block: ClassVar[str] = "table"
    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    words: int = 1
    """The number of leading columns of words, which are left-aligned. The others are numbers."""
    is_folded: bool = False
    omitted: int = 0
    """The number of further rows, which are not shown."""

    @classmethod
    def capped(
        cls,
        caption: str,
        head: Sequence[str],
        rows: Iterable[Sequence[str | Cell]],
        words: int = 1,
        *,
        is_folded: bool = False,
        limit: int = MAX_ROWS,
    ) -> Table:
        """Returns a table of the first `limit` rows, which counts the others."""
        kept = list(rows)
        return cls(caption, head, kept[:limit], words, is_folded, max(0, len(kept) - limit))


@dataclass(frozen=True)
class Figure:
    """A chart with its message."""

    block: ClassVar[str] = "figure"
    title: str
    message: str
    """The message of the chart in words, for people who do not see it."""
    svg: str
    """The SVG, in which all texts are escaped."""
    table: Table | None = None
    """The figures behind the chart."""
    note: str = ""
    """A sentence below the chart."""
    is_wide: bool = False
    """Whether a phone scrolls the chart, rather than drawing it smaller."""


@dataclass(frozen=True)
class Columns:
    """Blocks beside each other, or below each other on a narrow screen."""

    block: ClassVar[str] = "columns"
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Multiples:
    """Small charts of the same kind beside each other."""

    block: ClassVar[str] = "multiples"
    title: str
    figures: Sequence[Figure]
    series: Sequence[str] = ()
    """The names of the series in the order of their colours."""
    note: str = ""


@dataclass(frozen=True)
class Facts:
    """A list of names with values."""

    block: ClassVar[str] = "facts"
    pairs: Sequence[tuple[str, str | Cell]]


@dataclass(frozen=True)
class Note:
    """A paragraph with a mark."""

    block: ClassVar[str] = "note"
    text: str
    kind: str = ""
    """`good`, `bad`, `warn`, `muted`, or an empty string."""
    title: str = ""


@dataclass(frozen=True)
class Items:
    """A list of sentences under a heading."""

    block: ClassVar[str] = "items"
    title: str
    items: Sequence[str]
    kind: str = ""
    omitted: int = 0

    @classmethod
    def capped(cls, title: str, items: Sequence[str], kind: str = "", limit: int = 50) -> Items:
        """Returns a list of the first `limit` sentences, which counts the others."""
        kept = [shorten(item, 1000) for item in items[:limit]]
        return cls(title, kept, kind, max(0, len(items) - limit))


@dataclass(frozen=True)
class Code:
    """A folded text of a fixed width."""

    block: ClassVar[str] = "code"
    caption: str
    text: str


@dataclass(frozen=True)
class Picture:
    """A picture inside the page."""

    alt: str
    png: str
    """The PNG file in base64."""


@dataclass(frozen=True)
class Example:
    """A row with its prediction."""

    title: str
    detail: str
    pictures: Sequence[Picture] = ()
    words: Sequence[tuple[str, float]] = ()
    """The words of a text, each with its share divided by the largest share, from -1 to 1."""
    shares: Table | None = None
    values: Table | None = None


@dataclass(frozen=True)
class Examples:
    """Rows with their predictions."""

    block: ClassVar[str] = "examples"
    title: str
    examples: Sequence[Example]
    note: str = ""


Block = Table | Figure | Columns | Multiples | Facts | Note | Items | Code | Examples


@dataclass(frozen=True)
class Section:
    """A section of a page."""

    id: str
    title: str
    blocks: Sequence[Block] = field(default_factory=list)
    lead: str = ""
    """The message of the section in a sentence."""
