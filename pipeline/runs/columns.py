"""The type of each column for the model, its reason, and the config line to override it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.dsl.io import fileio

from components.column_types.choice import Choice, read_choices
from components.column_types.decision import choose_types
from components.column_types.facts import collect_facts, collect_list_facts
from components.example_gen.first_look import FirstRows
from components.example_gen.formats import FORMATS
from components.example_validator.review import find_in_split
from components.schema_gen.files import read_schema
from pipeline.config.settings import PipelineConfig, find_unsized
from pipeline.data.first_look import read_first_rows
from pipeline.run_context import RunContext
from pipeline.runs.console import show_path
from trainer_module.errors import as_key, counted
from trainer_module.features.base import BaseFeature
from trainer_module.settings import Feature, TextFeature

DECLARED = "declared in the config"
"""The beginning of the reason for a declared type."""
_MAX_COLUMNS = 20
"""The maximum number of columns in a plan, which has to fit on a screen."""
_MAX_NAME_WIDTH = 30


@dataclass(frozen=True)
class ColumnTypes:
    """The types of columns, and their origin."""

    origin: str
    """The source of the types, such as `columns, from schema.pbtxt`."""
    choices: Mapping[str, Choice]
    """The type of each feature column."""
    texts: Collection[str] = ()
    """The columns that contain text."""
    notes: Collection[str] = ()
    """Notes on the rows that were read."""

    def lines(self) -> Iterator[str]:
        """Yields the lines of a plan, surprising types first."""
        yield f"{self.origin}: {count_types(self.choices)}" if self.choices else self.origin
        ordered = sorted(self.choices.items(), key=_importance)
        width = min(
            max((len(name) for name, _ in ordered[:_MAX_COLUMNS]), default=0), _MAX_NAME_WIDTH
        )
        for name, choice in ordered[:_MAX_COLUMNS]:
            label = name if len(name) <= width else f"{name[: width - 3]}..."
            override = self._override(name, choice)
            yield f"  {label:<{width}}  {choice.type:<11}  {choice.reason}{override}"
        if more := dict(ordered[_MAX_COLUMNS:]):
            yield f"  and {len(more):,} more: {count_types(more)}"

    def _override(self, name: str, choice: Choice) -> str:
        """Returns the config line that gives a column another type."""
        if _is_declared(choice):
            return ""
        other = "ignore"
        if choice.is_ignored:
            other = "categorical" if name in self.texts else "numeric"
        if choice.type == "image":
            other = "image, height: 64, width: 64"
        return f"; to change it: features: {{{as_key(name)}: {{type: {other}}}}}"


def plan_columns(context: RunContext) -> ColumnTypes | None:
    """Returns the types of columns, from the schema or, without a schema, from the first rows.

    Returns None if the config has its own `preprocessing`, or the format contains images.

    Raises:
      DataError: the schema or the data cannot be read.
    """
    config, path = context.config, context.ingestion.settings.schema_file
    if config.preprocessing:
        return None
    if fileio.exists(path):
        schema = read_schema(path, config.data.label)
        chosen = read_choices(schema, path)
        types = effective_types(config.features, config.no_features, chosen)
        if not chosen:
            return ColumnTypes(
                f"columns: {show_path(path)} contains no types: numbers are numeric, text is "
                "categorical",
                types,
            )
        texts = {feature.name for feature in schema.feature if feature.type == schema_pb2.BYTES}
        return ColumnTypes(f"columns, from {show_path(path)}", types, texts)
    has_label = config.family.has_label
    look = read_first_rows(context.reading, context.data[-1]) if has_label else None
    if look is None:
        return _declared_types(config)
    no_features = config.no_features
    columns = {name: v for name, v in look.columns.items() if name not in no_features}
    lists = {name: v for name, v in look.lists.items() if name not in no_features}
    facts = [*collect_facts(columns, look.dates, look.total), *collect_list_facts(lists)]
    extent = "all" if look.is_complete else "the first"
    vectors = {name: _vector(*vector) for name, vector in look.vectors.items()}
    return ColumnTypes(
        f"columns, inferred from {extent} {counted(look.rows, 'row')} (final after the first run)",
        effective_types(config.features, config.no_features, {**choose_types(facts), **vectors}),
        {column.name for column in facts if column.is_text},
        _split_notes(config, look),
    )


def _split_notes(config: PipelineConfig, look: FirstRows) -> list[str]:
    """Returns a note if the rows are dated and a random split would give misleading metrics."""
    dates, label = config.dates_to_split_by, config.data.label
    if dates is None or label not in look.columns:
        return []
    undeclared = look.columns.keys() - config.features.keys()
    columns = {n: v for n, v in look.columns.items() if n in {label, *undeclared, *dates}}
    formats = {name: dated.format for name, dated in look.dates.items()} | dates
    finding = find_in_split(columns, label, config.task, formats, config.data.split_by or "")
    return [finding.found] if finding else []


def _declared_types(config: PipelineConfig) -> ColumnTypes | None:
    """Returns the types that the config declares, for files that a plan does not read."""
    if FORMATS[config.data.format].holds_images:
        return None
    return ColumnTypes(
        "columns: the first run infers their types; a plan does not read tfrecord, remote or "
        "large files",
        effective_types(config.features, config.no_features, {}),
    )


def _vector(length: int, is_text: bool) -> Choice:
    """Returns the type of a column of lists with a fixed length."""
    kind, noun = ("categorical", "strings") if is_text else ("numeric", "numbers")
    return Choice({"type": kind}, f"lists of {length:,} {noun} in each row")


def effective_types(
    features: Mapping[str, Feature], no_features: Collection[str], chosen: Mapping[str, Choice]
) -> dict[str, Choice]:
    """Returns the types of columns; declared types replace inferred types.

    Args:
      no_features: the columns that are not features.
      chosen: the types that follow from the data.
    """
    declared = {
        name: Choice(
            feature.model_dump(mode="json", exclude_unset=True),
            DECLARED + _contradiction(feature, chosen.get(name)),
        )
        for name, feature in features.items()
    }
    sized = {name: choice for name, choice in chosen.items() if choice.type == "image"}
    inferred_sizes = {name: sized[name] for name in find_unsized(features) if name in sized}
    types = {**chosen, **declared, **inferred_sizes}
    return {n: choice for n, choice in types.items() if n not in no_features}


def _contradiction(declared: BaseFeature, chosen: Choice | None) -> str:
    """Returns a warning if the data contradicts the declared type of a column."""
    if not isinstance(declared, TextFeature) or declared.tokens != "words" or chosen is None:
        return ""
    if chosen.settings.get("tokens") != "characters":
        return ""
    return "; its words are not separated by spaces, so use tokens: characters or wordpiece"


def count_types(choices: Mapping[str, Choice]) -> str:
    """Returns the number of columns of each type, the most frequent first."""
    counts = Counter("ignored" if c.is_ignored else c.type for c in choices.values())
    return ", ".join(f"{count:,} {kind}" for kind, count in counts.most_common())


def gist_of_types(choices: Mapping[str, Choice]) -> str:
    """Returns a line: the names of ignored columns, and the number of columns of other types."""
    ignored = sorted(n for n, c in choices.items() if c.is_ignored and not _is_declared(c))
    names = ", ".join(ignored[:5]) + (f" and {len(ignored) - 5} more" if len(ignored) > 5 else "")
    others = count_types({n: c for n, c in choices.items() if n not in ignored})
    sizes = [_size(n, c) for n, c in choices.items() if c.type == "image" and not _is_declared(c)]
    return "; ".join(filter(None, (f"ignores {names}" if ignored else "", others, *sizes)))


def _size(name: str, choice: Choice) -> str:
    """Returns the inferred size of the pictures in a column."""
    settings = choice.settings
    colour = "grey" if settings.get("channels") == 1 else "colour"
    return f"{name} {settings.get('height')}x{settings.get('width')} in {colour}"


def _is_declared(choice: Choice) -> bool:
    return choice.reason.startswith(DECLARED)


def _importance(item: tuple[str, Choice]) -> tuple[int, str, str]:
    """Returns the sort key of a column: surprising types first, equal reasons together."""
    name, choice = item
    if _is_declared(choice):
        return 4, choice.reason, name
    rank = {"ignore": 0, "categorical": 2, "numeric": 3}.get(choice.type, 1)
    return rank, choice.reason, name
