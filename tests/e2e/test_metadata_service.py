"""Metadata behind ML Metadata's own gRPC service, as Kubeflow has one."""

from __future__ import annotations

from pathlib import Path

import pytest
from e2e.conftest import Project
from mariadb_server import free_port
from metadata_service import metadata_service

from pipeline.config.settings import PipelineConfig
from pipeline.layout import Layout
from pipeline.records.metadata_store import check_store, copy_to_sqlite
from trainer_module.errors import ConfigError


def config_of(url: str) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "name": "digits",
            "data": {"format": "images", "path": "builtin:digits"},
            "task": "multiclass",
            "metadata": url,
        }
    )


def test_a_run_keeps_its_metadata_there_and_finds_it_again(
    project: Project, tmp_path: Path
) -> None:
    with metadata_service(tmp_path / "served.db") as (url, calls):
        arguments = ("run", "--validate-only", "--set", f"metadata={url}")
        first = project.scopeline(*arguments)
        assert first.returncode == 0, first.stdout + first.stderr
        assert set(project.states("digits").values()) == {"ran"}
        second = project.scopeline(*arguments)
        assert second.returncode == 0, second.stdout + second.stderr
        assert set(project.states("digits").values()) == {"cached"}
    assert "PutLineageSubgraph" in calls or "PutExecution" in calls
    assert not (project.output / "digits" / "metadata.db").exists()


def test_a_service_that_is_not_there_is_named(tmp_path: Path) -> None:
    url = f"grpc://127.0.0.1:{free_port()}"
    layout = Layout(tmp_path, "digits")
    with pytest.raises(ConfigError, match=f"{url}: the metadata service cannot be used .*running"):
        check_store(config_of(url).metadata, layout)


def test_a_service_cannot_be_copied_for_a_plan(tmp_path: Path) -> None:
    layout = Layout(tmp_path, "digits")
    with pytest.raises(ConfigError, match=r"cannot be copied.*name the database behind it"):
        copy_to_sqlite(config_of("grpc://metadata:8080").metadata, layout, tmp_path / "copy.db")
