"""A search and variants as steps on Kubeflow: a container is lost, and the next one goes on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from e2e.conftest import SMALL
from e2e.kubeflow.kubeflow_cluster import ROOT, Cluster, kill_once, states, summary
from metadata_service import metadata_service

from components.pusher.variants import read_manifest

OPTIMIZE = "optimize={variants: [float], required: true}"
TUNE = "tune={trials: 4, space: {train.batch_size: {choice: [80, 96]}}}"


@dataclass(frozen=True)
class Service:
    """A metadata server, as `Cluster` asks for it."""

    address: str

    def url(self, database: str, host: str) -> str:
        """Where it is; it has one database."""
        del database, host
        # A config for a cluster may not name this machine as such.
        return self.address.replace("127.0.0.1", "0.0.0.0")  # noqa: S104


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    volume = tmp_path_factory.mktemp("tuned") / "volume"
    volume.mkdir()
    with metadata_service(volume.parent / "metadata.db") as (url, _):
        yield Cluster(volume, Service(url), "")


def test_search_that_is_killed_goes_on_and_the_trainer_takes_what_it_finds(
    cluster: Cluster,
) -> None:
    compiled = cluster.compile(
        ROOT / "configs" / "digits.yaml",
        SMALL,
        TUNE,
        OPTIMIZE,
        "train.epochs=2",
        "evaluate.thresholds={accuracy: {min: 0.1}}",
    )
    killing = kill_once(cluster, "tuner", "trial 1 ")
    run = cluster.executor(compiled, killing).run()
    assert run.state == "SUCCEEDED", run.report()
    assert [one.exit_code for one in run.tasks["tuner"].attempts] == [-signal.SIGKILL, 0]
    assert "goes on after " in run.tasks["tuner"].log
    told = summary(run)
    assert states(run)["Tuner"] == states(run)["Trainer"] == "ran"
    assert sorted(trial["number"] for trial in told.tuning["trials"]) == [0, 1, 2, 3]
    assert states(run)["Optimizer"] == states(run)["Pusher"] == "ran"
    (variant,) = told.variants["variants"]
    assert variant["accepted"]
    assert told.pushed is not None
    assert read_manifest(Path(told.pushed)).keys() == {"float"}
    assert told.training["global_batch_size"] == told.tuning["values"]["train.batch_size"]
