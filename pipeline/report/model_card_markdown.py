"""Writes a model card as Markdown with the front matter of Hugging Face's hub.

The fields of the front matter: https://huggingface.co/docs/hub/model-cards#model-card-metadata
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from pipeline.report.model_card import (
    MAX_COLUMNS,
    MAX_SLICES,
    CardSource,
    licence_of,
    show_number,
)
from pipeline.report.text import shorten

_SPECIAL = re.compile(r"([\\`*_\[\]#|~$]|^[-+](?= )|(?<=^\d)[.)](?= ))")
"""Characters with a meaning in Markdown or its dialects: anywhere, or at the start of a text."""
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_TAGS_OF_TASKS = {
    "control": "reinforcement-learning",
    "generation": "unconditional-image-generation",
}
"""Hugging Face's tag by the task of a family without labels."""
_LICENCE_LIST = """
afl-3.0 agpl-3.0 apache-2.0 artistic-2.0 bsd-2-clause bsd-3-clause bsd-3-clause-clear bsl-1.0
cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nc-nd-3.0
cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cc-by-nd-4.0 cc-by-sa-3.0
cc-by-sa-4.0 cc0-1.0 cdla-permissive-1.0 cdla-permissive-2.0 cdla-sharing-1.0 ecl-2.0 epl-1.0
epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2 gpl-2.0 gpl-3.0 isc lgpl-2.1 lgpl-3.0 lppl-1.3c mit mpl-2.0
ms-pl ncsa ofl-1.1 osl-3.0 pddl-1.0 postgresql unlicense wtfpl zlib
"""
_LICENCES = frozenset(_LICENCE_LIST.split())
"""The SPDX identifiers that the hub knows: https://huggingface.co/docs/hub/repositories-licenses.
Other licences are `other`, with the text in `license_name`.
"""


def card_as_markdown(source: CardSource) -> str:
    """Returns a card as Markdown, whose texts from the data and the config are escaped."""
    front = yaml.safe_dump(_front_matter(source), sort_keys=False, allow_unicode=False)
    return f"---\n{front}---\n\n" + "\n\n".join(_sections(source)) + "\n"


def _front_matter(source: CardSource) -> dict[str, Any]:
    summary, tag = source.summary, pipeline_tag(source)
    metrics = {
        name: metric.value
        for name, metric in summary.metrics.items()
        if math.isfinite(metric.value)
    }
    result = {
        "task": {"type": tag or "other", "name": source.config.target.kind},
        "dataset": {"name": source.config.name, "type": source.config.data.format, "split": "eval"},
        "metrics": [
            {"type": name, "value": value, "name": name} for name, value in metrics.items()
        ],
    }
    tags = ["scopeline", "tfx", source.config.target.kind, source.kind]
    front = {
        **_licence(source.card.licence),
        "library_name": "tensorflow",
        "tags": list(dict.fromkeys(tags)),
        "metrics": list(metrics),
        "model-index": [{"name": source.config.name, "results": [result]}] if metrics else [],
    }
    if tag:
        front["pipeline_tag"] = tag
    return {key: value for key, value in front.items() if value}


def _licence(text: str | None) -> dict[str, str]:
    """Returns the keys of a licence; the hub takes lower-case identifiers of some licences."""
    identifier = re.sub("-(only|or-later)$", "", licence_of(text).get("identifier", "").lower())
    if text is None or identifier in _LICENCES:
        return {"license": identifier} if text else {}
    return {"license": "other", "license_name": " ".join(text.split())[:200]}


def pipeline_tag(source: CardSource) -> str | None:
    """Returns the hub's tag of the task, or None if the hub has no tag for it."""
    config = source.config
    if not config.family.has_label:
        return _TAGS_OF_TASKS.get(config.target.kind)
    types: set[str] = {feature.type for feature in config.features.values()}
    types |= {str(column.settings.get("type")) for column in source.summary.columns.values()}
    types -= {"ignore"}
    is_classification = config.task.is_classification
    if types == {"image"}:
        return "image-classification" if is_classification else None
    if types == {"text"}:
        return "text-classification" if is_classification else None
    if config.data.lags is not None and not is_classification:
        return "time-series-forecasting"
    return f"tabular-{'classification' if is_classification else 'regression'}"


def _sections(source: CardSource) -> Iterator[str]:
    card = source.card
    yield f"# {escape(source.config.name)}"
    if card.overview:
        yield _paragraphs(card.overview)
    yield _table(("", ""), source.description)
    owner = [("Owner", card.owner), ("Contact", card.contact), ("Licence", card.licence)]
    people = [(name, value) for name, value in owner if value]
    if people:
        yield "## Owner"
        yield _table(("", ""), people)
    for title, texts in (
        ("Users", card.users),
        ("Intended use", card.intended_use),
        ("Limits", card.limits),
        ("Trade-offs", card.tradeoffs),
        ("Risks", [f"{name}: {text}" for name, text in card.risks.items()]),
    ):
        if texts:
            yield f"## {title}"
            yield _list(texts)
    yield from _data(source)
    yield from _evaluation(source)
    if card.references:
        yield "## References"
        yield "\n".join(f"- <{_url(url)}>" for url in card.references)
    if source.notes:
        yield "## Notes of the run"
        yield _list(source.notes)
    if source.missing:
        yield "## Missing"
        yield _list(source.missing)


def _data(source: CardSource) -> Iterator[str]:
    if source.summary.examples:
        yield "## Data"
        rows = [(split, f"{count:,}") for split, count in source.summary.examples.items()]
        yield _table(("split", "rows"), rows)
    if source.columns:
        yield "## Columns"
        yield _table(("column", "type"), source.columns[:MAX_COLUMNS])
        yield from _others(len(source.columns) - MAX_COLUMNS, "columns")


def _evaluation(source: CardSource) -> Iterator[str]:
    summary = source.summary
    if not summary.metrics:
        return
    level = source.config.evaluate.confidence
    interval = "interval" if level is None else f"interval ({level:.0%})"
    yield "## Evaluation"
    yield _table(
        ("metric", "value", interval, "model in service", "threshold"),
        [
            (
                name,
                show_number(metric.value),
                " to ".join(map(show_number, metric.interval or ())),
                "" if metric.in_service is None else show_number(metric.in_service),
                metric.needs,
            )
            for name, metric in summary.metrics.items()
        ],
    )
    if source.slices:
        found = [name for values in source.slices.values() for name in values]
        names = list(dict.fromkeys(["example_count", *summary.metrics, *found]))
        names = [name for name in names if name in found]
        shown = list(source.slices.items())[:MAX_SLICES]
        yield "### By slice"
        yield _table(
            ("slice", *names),
            [(shorten(name, 80), *(_cell(values, n) for n in names)) for name, values in shown],
        )
        yield from _others(len(source.slices) - MAX_SLICES, "slices")


def _others(count: int, things: str) -> Iterator[str]:
    if count > 0:
        yield f"{count:,} further {things} are not listed."


def _cell(values: Mapping[str, float], name: str) -> str:
    return show_number(values[name]) if name in values else ""


def _table(titles: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Returns a table of escaped cells."""
    columns = [*titles]
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(
        f"| {' | '.join(cell if cell == '---' else escape(str(cell)) for cell in line)} |"
        for line in lines
    )


def _list(texts: Iterable[str]) -> str:
    return "\n".join(f"- {escape(text)}" for text in texts)


def _paragraphs(text: str) -> str:
    return "\n\n".join(filter(None, map(escape, re.split(r"\n\s*\n", text))))


def escape(text: str) -> str:
    """Returns text in one line that Markdown shows as it is.

    Control and formatting characters, such as those that reverse the direction of text, are left
    out; Markdown's own characters and HTML are escaped.
    """
    visible = "".join(
        " " if char.isspace() else char
        for char in text
        if char.isspace() or not unicodedata.category(char).startswith("C")
    )
    return _SPECIAL.sub(r"\\\1", re.sub("[&<>]", _entity, " ".join(visible.split())))


def _entity(match: re.Match[str]) -> str:
    return _ENTITIES[match[0]]


def _url(url: str) -> str:
    """Returns a URL without characters that could end a link in angle brackets."""
    return re.sub(r"[<>\\\s]", lambda match: f"%{ord(match[0]):02X}", url)
