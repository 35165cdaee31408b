"""digits under each strategy, to a pushed model; and what is refused or goes wrong early."""

from __future__ import annotations

import json
import os
import socket
import subprocess

import pytest

from tests.support import warm
from tests.support.project import Project

pytestmark = pytest.mark.slow

SETTINGS = (
    "model={kind: cnn, filters: [8], hidden_units: [32]}",
    "train.epochs=5",
    "train.learning_rate=0.01",
    "evaluate.thresholds={accuracy: {min: 0.85, tolerance: 0.15}}",
    "certificate=false",
)
"""Each model is quickly trained, and replaces another that is about as good."""


def changes(*settings: str) -> list[str]:
    """Options that change the config."""
    return [part for setting in settings for part in ("--set", setting)]


def run_with(project: Project, tf_config: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return warm.run(
        project.command("run", *arguments),
        cwd=project.folder,
        env={**os.environ, "TF_CONFIG": tf_config},
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_a_peer_that_never_comes(project: Project) -> None:
    """Data components are cached; the Trainer joins the cluster, and waits for so long."""
    with socket.create_server(("localhost", 0)) as own, socket.create_server(("", 0)) as other:
        ports = own.getsockname()[1], other.getsockname()[1]
    cluster = {"worker": [f"localhost:{port}" for port in ports]}
    tf_config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}})
    done = run_with(
        project,
        tf_config,
        *("--set", "train.strategy=multi_worker_mirrored"),
        *("--set", "train.cluster.start_timeout=5"),
    )
    assert done.returncode == 1
    assert (
        f"Trainer failed: no answer from worker 1 at localhost:{ports[1]} within 5 s" in done.stdout
    )


def test_a_worker_that_cannot_import_the_model(project: Project) -> None:
    """On its machine, in its environment: here the module asks who it is in."""
    (project.folder / "fickle_model.py").write_text(
        "import os\n\n"
        "if '\"index\": 1' in os.environ.get('TF_CONFIG', ''):\n"
        "    raise ImportError('no module named sparkle')\n\n"
        "from trainer_module.families.supervised.models.tables import build_mlp as build_model\n"
    )
    done = project.scopeline(
        *("run", "--set", "train.strategy=multi_worker_mirrored"),
        *("--set", "model={kind: fickle_model.build_model}"),
    )
    assert done.returncode == 1
    assert (
        "Trainer failed: model 'fickle_model.build_model': cannot import 'fickle_model': no module "
        "named sparkle"
    ) in done.stdout


def test_two_runs_join_the_cluster_that_tf_config_names(project: Project) -> None:
    """As on two machines: each with its own output, the same data and the same losses."""
    with socket.create_server(("localhost", 0)) as one, socket.create_server(("", 0)) as two:
        addresses = [f"localhost:{server.getsockname()[1]}" for server in (one, two)]
    changed = ("train.strategy=auto", "train.epochs=2", "evaluate.thresholds={}")
    settings = (*SETTINGS, *changed)
    processes = []
    for index in (0, 1):
        task = {"type": "worker", "index": index}
        process = warm.Popen(
            project.command("run", *changes(*settings, f"name=machine{index}")),
            cwd=project.folder,
            env={
                **os.environ,
                "TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": task}),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        processes.append(process)
    output = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], output
    assert "note: strategy auto: multi_worker_mirrored, as TF_CONFIG names 2 workers" in output[0]
    histories = [project.summary(f"machine{i}")["training"]["history"] for i in (0, 1)]
    assert histories[0]["loss"] == pytest.approx(histories[1]["loss"], rel=1e-6)
