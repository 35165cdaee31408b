"""digits under each strategy, to a pushed model; and what is refused or goes wrong early."""

from __future__ import annotations

import json
import os
import socket
import subprocess

import pytest
import warm
from e2e.conftest import Project

TWO_CPUS = "devices: [cpu:0, cpu:1]"
SETTINGS = ("--set", "evaluate.thresholds.accuracy.tolerance=0.05")
"""Each model replaces another that is about as good."""


@pytest.mark.parametrize(
    ("strategy", "loop", "replicas", "at_least"),
    [
        ("default", "custom", 1, 0.96),
        ("{kind: one_device, device: cpu:0}", "fit", 1, 0.96),
        (f"{{kind: mirrored, {TWO_CPUS}}}", "custom", 2, 0.96),
        (f"{{kind: central_storage, {TWO_CPUS}}}", "fit", 2, 0.96),
        ("multi_worker_mirrored", "fit", 2, 0.96),
        ("parameter_server", "fit", 1, 0.95),
    ],
)
def test_digits_is_pushed(
    project: Project, strategy: str, loop: str, replicas: int, at_least: float
) -> None:
    changes = ("--set", f"train.strategy={strategy}", "--set", f"train.loop={loop}")
    done = project.scopeline("run", *changes, *SETTINGS)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = project.summary("digits")
    training = summary["training"]
    assert (training["strategy"] in strategy, training["loop"]) == (True, loop)
    assert (summary["replicas"], training["global_batch_size"]) == (replicas, 64 * replicas)
    assert summary["metrics"]["accuracy"]["value"] >= at_least
    assert summary["status"] == "pushed"
    assert training["steps"] == training["epochs"] * -(-1442 // (64 * replicas))
    assert training["step_seconds"] > 0
    assert training["examples_per_second"] > 0
    assert len(training["examples_per_worker"]) == training["workers"]


def test_auto_says_what_it_picked(project: Project) -> None:
    """One step per epoch: this is not about the model."""
    settings = ("train.strategy=auto", "train.batch_size=2000", "train.epochs=1")
    changes = [part for setting in settings for part in ("--set", setting)]
    done = project.scopeline("run", *changes, "--set", "evaluate.thresholds={}")
    assert "note: strategy auto: default, as there is neither a GPU nor a TPU" in done.stdout
    assert (
        "note: the train split's 1442 examples are fewer than a global batch of 2000: a step takes "
        "1442"
    ) in done.stdout


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (
            "{kind: one_device, device: gpu:7}",
            "train.strategy asks for gpu:7, but TensorFlow sees",
        ),
        ("tpu", "strategy tpu: no TPU is named and this machine has none"),
    ],
)
def test_a_device_that_is_not_there(project: Project, strategy: str, message: str) -> None:
    done = project.scopeline("run", "--set", f"train.strategy={strategy}")
    assert done.returncode == 2
    assert message in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert project.summary("digits")["components"] == [], "nothing ran"


def run_with(project: Project, tf_config: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return warm.run(
        project.command("run", *arguments),
        cwd=project.folder,
        env={**os.environ, "TF_CONFIG": tf_config},
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_a_tf_config_that_cannot_be_used(project: Project) -> None:
    done = run_with(project, "{oops")
    assert done.returncode == 2
    assert "TF_CONFIG" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


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
        *("--set", "train.cluster.start_timeout=12"),
    )
    assert done.returncode == 1
    assert (
        f"Trainer failed: no answer from worker 1 at localhost:{ports[1]} within 12 s"
        in done.stdout
    )


def test_a_worker_that_cannot_import_the_model(project: Project) -> None:
    """On its machine, in its environment: here the module asks who it is in."""
    (project.folder / "fickle_model.py").write_text(
        "import os\n\n"
        "if '\"index\": 1' in os.environ.get('TF_CONFIG', ''):\n"
        "    raise ImportError('no module named sparkle')\n\n"
        "from trainer_module.models.mlp import build_model\n"
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
    settings = ("train.strategy=auto", "train.epochs=2", "evaluate.thresholds={}")
    processes = []
    for index in (0, 1):
        task = {"type": "worker", "index": index}
        changes = [part for s in (*settings, f"name=machine{index}") for part in ("--set", s)]
        process = warm.Popen(
            project.command("run", *changes),
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
    said = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert "note: strategy auto: multi_worker_mirrored, as TF_CONFIG names 2 workers" in said[0]
    histories = [project.summary(f"machine{i}")["training"]["history"] for i in (0, 1)]
    assert histories[0]["loss"] == pytest.approx(histories[1]["loss"], rel=1e-6)
