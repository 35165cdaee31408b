"""Objects that an API server would refuse, by its published schemas and by roles."""

from __future__ import annotations

from typing import Any

import kubernetes_validate

Object = dict[str, Any]

VERSIONS = ("1.28", "1.37")
"""The oldest that is supported, and the newest that there are schemas of."""


def problems(body: Object) -> list[str]:
    """Everything that is wrong with an object that is to be created."""
    found = []
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(body, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            found.append(f"{version}: {'.'.join(map(str, error.path))}: {error.message}")
    return found


def is_allowed(rules: list[Object], verb: str, resource: str) -> bool:
    """Whether one of the rules of a role allows a request."""
    name, _, group = resource.partition(".")
    return any(
        verb in rule["verbs"] and name in rule["resources"] and group in rule["apiGroups"]
        for rule in rules
    )
