"""Secrets that environment variables hold."""

from __future__ import annotations

import os


def read_secret(variable: str) -> str | None:
    """The value of an environment variable; None if it is not set, or holds nothing but blanks.

    A Secret that was made of an empty file sets its variable, too. Who takes that for a key signs
    with one that everybody knows, or asks for none.
    """
    value = os.environ.get(variable, "")
    return value if value.strip() else None


def shown_name(variable: str) -> str:
    """The name of a variable, unless it may be a secret that was taken for one."""
    return variable if variable.isupper() else "that it names"
