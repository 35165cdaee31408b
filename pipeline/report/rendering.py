"""Renders the templates of pages. Every text is escaped, and invisible characters are codes."""

from __future__ import annotations

from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup

from pipeline.report.blocks import Cell
from pipeline.report.text import visible


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(
            [jinja2.PackageLoader("pipeline.report"), jinja2.PackageLoader("components.pages")]
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters |= {"svg": Markup, "cell": _cell}
    return environment


def _finalize(value: object) -> object:
    """Returns a value as it is shown; HTML that the templates have made is not changed."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return visible(value)


def _cell(value: str | Cell) -> Cell:
    return value if isinstance(value, Cell) else Cell(value)


def render(template: str, /, **values: Any) -> str:
    """Returns a page as HTML.

    Args:
      template: the name of a file in `templates`.
      values: the variables of the template.
    """
    return _environment().get_template(template).render(values)
