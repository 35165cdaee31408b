"""Recurring runs on Kubeflow are created, replaced and removed to agree with the config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.config.settings import PipelineConfig
from pipeline.kubeflow.api import recurring
from pipeline.kubeflow.api.client import Kubeflow
from pipeline.kubeflow.cluster_layout import settings_of
from pipeline.kubeflow.compiled import CompiledPipeline
from tests.support.kfp_server import Answer, KfpServer
from tests.support.small_pipeline import COMPILED, load
from trainer_module.errors import ConfigError, InternalError

NIGHTLY = {"cron": "0 3 * * *"}
CHANGED = CompiledPipeline(
    COMPILED.name, COMPILED.yaml + "# changed\n", COMPILED.steps, COMPILED.parameters
)
FAILURE = Answer(500, '{"message": "database is locked"}')


class Cluster:
    """A config's recurring runs on the server."""

    def __init__(self, server: KfpServer, folder: Path, **changes: Any) -> None:
        self.server = server
        self.config: PipelineConfig = load(folder, server.url, **{"schedule": NIGHTLY, **changes})
        self.kubeflow = Kubeflow(settings_of(self.config))

    def apply(self, compiled: CompiledPipeline = COMPILED, dry_run: bool = False) -> list[str]:
        shown: list[str] = []
        recurring.apply(self.kubeflow, self.config, compiled, dry_run, shown.append)
        return shown

    def remove(self, dry_run: bool = False) -> list[str]:
        shown: list[str] = []
        recurring.remove(self.kubeflow, self.config, dry_run, shown.append)
        return shown

    @property
    def enabled(self) -> list[str]:
        """The versions that runs are started of."""
        return [
            self.server.versions[item["pipeline_version_reference"]["pipeline_version_id"]][
                "display_name"
            ]
            for item in self.server.recurring.values()
            if item["status"] == "ENABLED"
        ]


def test_first_recurring_run_is_created(server: KfpServer, tmp_path: Path) -> None:
    cluster = Cluster(server, tmp_path, kubeflow={"service_account": "scopeline"})
    assert cluster.apply() == ["digits:", f"+ 0 0 3 * * *  {COMPILED.version}", "done"]
    [made] = server.recurring.values()
    sent = next(r.body for r in server.requests if r.call == "POST /recurringruns")
    [version], [experiment] = server.versions.values(), server.experiments.values()
    assert sent == {
        "display_name": "digits",
        "pipeline_version_reference": {
            "pipeline_id": version["pipeline_id"],
            "pipeline_version_id": version["pipeline_version_id"],
        },
        "experiment_id": experiment["experiment_id"],
        "runtime_config": {"parameters": {}},
        "service_account": "scopeline",
        "trigger": {"cron_schedule": {"cron": "0 0 3 * * *"}},
        "max_concurrency": 1,
        "no_catchup": True,
        "mode": "DISABLE",
    }
    assert made["status"] == "ENABLED"


def test_nothing_to_do_sends_nothing(server: KfpServer, tmp_path: Path) -> None:
    cluster = Cluster(server, tmp_path)
    cluster.apply()
    before = len(server.changes)
    shown = cluster.apply()
    assert shown == ["digits: the recurring run agrees with the config; nothing to do"]
    assert len(server.changes) == before


def test_changed_recurring_run_is_replaced(server: KfpServer, tmp_path: Path) -> None:
    Cluster(server, tmp_path).apply()
    [old] = server.recurring
    server.requests.clear()
    cluster = Cluster(server, tmp_path, schedule={"cron": "30 4 * * 1"})
    shown = cluster.apply(CHANGED)
    assert shown == [
        "digits:",
        f"- 0 0 3 * * *  {COMPILED.version}  ({old})",
        f"+ 0 30 4 * * 1  {CHANGED.version}",
        "    cron: 0 0 3 * * * -> 0 30 4 * * 1",
        f"    version: {COMPILED.version} -> {CHANGED.version}",
        "done",
    ]
    assert server.changes == [
        "POST /pipelines/upload_version",
        "POST /recurringruns",
        "POST /recurringruns/ID:disable",
        "POST /recurringruns/ID:enable",
        "DELETE /recurringruns/ID",
    ]
    assert cluster.enabled == [CHANGED.version]
    assert len(server.recurring) == 1


@pytest.mark.parametrize(
    ("there", "line"),
    [
        ({"max_concurrency": "10"}, "runs at a time: 10 -> 1"),
        ({"status": "DISABLED", "mode": "DISABLE"}, "enabled: no -> yes"),
        ({"runtime_config": {"parameters": {"epochs": 1}}}, "parameters: epochs=1 -> none"),
    ],
    ids=[
        "concurrency",
        "paused",
        "parameters",
    ],
)
def test_manual_change_is_reverted(
    server: KfpServer, tmp_path: Path, there: dict[str, Any], line: str
) -> None:
    cluster = Cluster(server, tmp_path)
    cluster.apply()
    [key] = server.recurring
    server.recurring[key] |= there
    assert any(line in shown for shown in cluster.apply())
    assert cluster.apply()[-1].endswith("nothing to do")
    assert len(server.recurring) == 1


@pytest.mark.parametrize("call", [":disable", "POST /recurringruns$"])
def test_failed_change_keeps_the_old_recurring_run(
    server: KfpServer, tmp_path: Path, call: str
) -> None:
    cluster = Cluster(server, tmp_path)
    cluster.apply()
    server.trouble(call, FAILURE)
    with pytest.raises(InternalError, match="database is locked"):
        cluster.apply(CHANGED)
    assert cluster.enabled == [COMPILED.version]
    cluster.apply(CHANGED)
    assert cluster.enabled == [CHANGED.version]
    assert len(server.recurring) == 1


@pytest.mark.parametrize(
    ("changes", "left"),
    [(1, [COMPILED]), (2, [COMPILED]), (3, []), (4, [CHANGED])],
    ids=["uploaded", "created", "disabled", "enabled"],
)
def test_killed_change_is_finished_by_the_next(
    server: KfpServer, tmp_path: Path, changes: int, left: list[CompiledPipeline]
) -> None:
    cluster = Cluster(server, tmp_path)
    cluster.apply()
    server.changes_left = changes
    with pytest.raises(InternalError, match="nothing goes any more"):
        cluster.apply(CHANGED)
    server.changes_left = None
    assert cluster.enabled == [compiled.version for compiled in left]
    assert cluster.apply(CHANGED)[-1] == "done"
    assert cluster.enabled == [CHANGED.version]
    assert len(server.recurring) == 1


def test_recurring_runs_of_other_pipelines_stay(server: KfpServer, tmp_path: Path) -> None:
    cluster = Cluster(server, tmp_path)
    cluster.apply()
    [key] = server.recurring
    other = {"pipeline_id": "other", "pipeline_version_id": "other"}
    mine = server.recurring[key]
    server.recurring["theirs"] = mine | {
        "recurring_run_id": "theirs",
        "pipeline_version_reference": other,
    }
    server.recurring["spec"] = mine | {"recurring_run_id": "spec", "pipeline_spec": {}}
    del server.recurring["spec"]["pipeline_version_reference"]
    assert cluster.apply()[-1].endswith("nothing to do")
    assert len(cluster.remove()) == 1
    assert set(server.recurring) == {"theirs", "spec"}
    assert cluster.remove() == ["digits: there is no recurring run; nothing to do"]


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ({"on_new_data": True}, "schedule.cron: this key is missing"),
        (
            {"cron": "0 3 * * *", "timezone": "Europe/Paris"},
            "schedule.timezone: found Europe/Paris",
        ),
        ({"cron": "0 3 * * 7"}, "schedule.cron: found 0 3 * * 7"),
    ],
    ids=[
        "no cron",
        "time zone",
        "7",
    ],
)
def test_unsupported_schedule_is_refused(
    tmp_path: Path, schedule: dict[str, Any] | None, message: str
) -> None:
    data = {"format": "csv", "path": "data/{SPAN}.csv", "label": "y"}
    config = load(tmp_path, "http://localhost", schedule=schedule, data=data)
    with pytest.raises(ConfigError) as found:
        recurring.cron_for_kubeflow(config)
    assert message in str(found.value)
