"""Numbers and dates as in YAML 1.2, for PyYAML, which implements YAML 1.1."""

from __future__ import annotations

import re

import yaml

_TAG = "tag:yaml.org,2002:"
_NUMBERS = {
    f"{_TAG}float": r"""[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?
        |[-+]?[0-9]+[eE][-+]?[0-9]+
        |[-+]?\.(?:inf|Inf|INF)
        |\.(?:nan|NaN|NAN)""",
    f"{_TAG}int": r"""[-+]?0b[0-1_]+
        |[-+]?0[0-7_]+
        |[-+]?(?:0|[1-9][0-9_]*)
        |[-+]?0x[0-9a-fA-F_]+""",
}


def core_resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """Returns PyYAML's resolvers of plain scalars, with the numbers of YAML 1.2.

    1e-3 is a number, unlike in YAML 1.1, and dates and times such as 2026-01-05 and 12:30 are text.
    """
    patterns = {tag: re.compile(f"^(?:{text})$", re.VERBOSE) for tag, text in _NUMBERS.items()}
    return {
        first: [
            (tag, patterns.get(tag, pattern))
            for tag, pattern in resolvers
            if tag != f"{_TAG}timestamp"
        ]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


class ConfigDumper(yaml.SafeDumper):
    """Writes values so that a config that is loaded has the same values."""

    yaml_implicit_resolvers = {
        first: [*resolvers, *core_resolvers().get(first, ())]
        for first, resolvers in yaml.SafeDumper.yaml_implicit_resolvers.items()
    }
