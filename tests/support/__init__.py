"""Data, runs, servers and processes that several test modules share."""

from pathlib import Path

SUPPORT = Path(__file__).parent
USER_CODE = SUPPORT / "user_code"
"""Modules as users write them, which configs name; pytest finds them at the top level."""
