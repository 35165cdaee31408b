"""Tests of Scopeline: they mirror the packages, and share what lies in `tests.support`."""
