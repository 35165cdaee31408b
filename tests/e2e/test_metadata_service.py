"""Metadata behind ML Metadata's own gRPC service, as Kubeflow has one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.metadata_service import metadata_service
from tests.support.project import Project, few_digits

pytestmark = pytest.mark.slow


def test_second_run_is_cached_by_the_metadata_service(project: Project, tmp_path: Path) -> None:
    with metadata_service(tmp_path / "served.db") as (url, calls):
        data = f"data.path={few_digits(project.folder)}"
        arguments = ("run", "--validate-only", "--set", f"metadata={url}", "--set", data)
        first = project.scopeline(*arguments)
        assert first.returncode == 0, first.stdout + first.stderr
        assert set(project.states("digits").values()) == {"ran"}
        second = project.scopeline(*arguments)
        assert second.returncode == 0, second.stdout + second.stderr
        assert set(project.states("digits").values()) == {"cached"}
    assert "PutLineageSubgraph" in calls or "PutExecution" in calls
    assert not (project.output / "digits" / "metadata.db").exists()
