"""Folders that pipelines run in."""

from __future__ import annotations

import pytest

from tests.support.project import Project


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A folder of a module's own."""
    return Project(tmp_path_factory.mktemp("project"))
