"""The text of a config, with a comment on each line, and of the files beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from pipeline.config.schema_file import editor_line
from pipeline.config.yaml_core import ConfigDumper
from pipeline.first_config.proposal import Proposal
from trainer_module.errors import shorten

_COMMENT_COLUMN = 44
"""The column in which comments begin, unless the line is longer."""
_MAX_COMMENT = 100
"""The maximum number of characters of a comment."""


def render_config(proposal: Proposal, command: str) -> str:
    """Returns the YAML text of a proposed config.

    Args:
      command: the command that proposed it, for the first comment.
    """
    extent = f" from {proposal.rows}" if proposal.rows else ""
    lines = [
        editor_line(),
        f"# Written{extent} by `{_plain(command)}`. All keys: docs/config.md",
    ]
    for key, value in proposal.config.items():
        lines += _render(key, value, proposal)
    return "\n".join(lines) + "\n"


def _render(key: str, value: Any, proposal: Proposal) -> Iterator[str]:
    """Yields the lines of a key: a section has a line for each of its keys."""
    if not isinstance(value, Mapping):
        yield _with_comment(_pair(key, value), proposal.comment(key))
        return
    yield _with_comment(f"{key}:", proposal.comment(key))
    for name, child in value.items():
        yield _with_comment(f"  {_pair(name, child)}", proposal.comment(f"{key}.{name}"))


def _pair(key: str, value: Any) -> str:
    """Returns a key and its value on one line, also keys that PyYAML would write on several."""
    return f"{_flow(key)}: {_flow(value)}"


def _flow(value: Any) -> str:
    text: str = yaml.dump(
        [value],
        Dumper=_Dumper,
        default_flow_style=True,
        sort_keys=False,
        allow_unicode=True,
        width=float("inf"),
    )
    return text.strip()[1:-1]


class _Dumper(ConfigDumper):
    """Writes line breaks and other characters that are not printable as escapes."""


def _represent(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"'
    )


_Dumper.add_representer(str, _represent)


def _with_comment(line: str, comment: str) -> str:
    return f"{line:<{_COMMENT_COLUMN}}  # {_plain(comment)}" if comment else line


def _plain(text: str) -> str:
    """Returns a text of a file or a user on one printable line of limited length."""
    words = "".join(c if c.isprintable() else " " for c in text)
    return shorten(words, _MAX_COMMENT)


IGNORED = "# Written by Scopeline's runs.\noutput/\n"
"""The content of .gitignore."""


def render_readme(name: str, config: str, program: str) -> str:
    """Returns a README of five lines.

    Args:
      config: the name of the file of the config.
      program: the words that start the command line, such as `scopeline`.
    """
    return (
        f"# {name}\n\n"
        f"`{program} run {config}` trains, evaluates and pushes the model.\n"
        f"`{program} plan {config}` shows what a run would do.\n"
        f"`{program} predict --config {config} --input FILE --answers answers.csv` predicts the"
        " rows of a file.\n"
        f"`{program} serve {config}` serves the model over HTTP.\n"
        f"Models and reports are in `output/{name}/`.\n"
    )
