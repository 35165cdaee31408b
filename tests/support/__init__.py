"""Data, runs, servers and processes that several test modules share."""

from pathlib import Path

SUPPORT = Path(__file__).parent
