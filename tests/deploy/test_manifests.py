"""The manifests in deploy/ are valid, and fit each other and the layout."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import typer
import yaml

import local_runner
from components.processes.ending import SERVER_GRACE_SECONDS
from components.serving.server.connections import OPEN_PATHS
from components.serving.server.metrics import Metrics
from components.serving.server.options import KEY_VARIABLE
from pipeline.config.loading import load_config
from pipeline.layout import Layout
from tests.support.kubernetes_schemas import (
    assert_confined,
    assert_volumes_match,
    read_valid,
)

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
OWN_KINDS = {"inference-service.yaml", "service-monitor.yaml"}
"""KServe's and Prometheus's, which no schema of Kubernetes knows."""
FILES = sorted(p for p in ROOT.glob("deploy/**/*.yaml") if p.name not in OWN_KINDS)
DIGITS = load_config(ROOT / "configs" / "digits.yaml")
MOUNT = Path("/mnt/scopeline")
USER = 1000
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


def read(name: str) -> dict[str, Any]:
    return {m["kind"]: m for m in yaml.safe_load_all((KUBERNETES / name).read_text())}


def claim_name() -> str:
    return str(read("storage.yaml")["PersistentVolumeClaim"]["metadata"]["name"])


def pushed_folder() -> str:
    """Where the Pusher puts models, as a path in the volume."""
    layout = Layout.of(DIGITS.name, DIGITS.push, MOUNT / "output")
    return str(Path(layout.serving).relative_to(MOUNT))


def test_manifests_are_valid() -> None:
    for path in FILES:
        assert read_valid(path.read_text()), path


def test_volume_is_shared_and_writable_by_the_user_of_the_image() -> None:
    manifests = read("storage.yaml")
    assert manifests["PersistentVolumeClaim"]["spec"]["accessModes"] == ["ReadWriteMany"]
    pod = manifests["Job"]["spec"]["template"]["spec"]
    assert_volumes_match(pod)
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim_name()
    assert f"{USER}:{USER}" in pod["containers"][0]["command"]
    assert f"USER {USER}:{USER}" in (ROOT / "deploy" / "Dockerfile").read_text().splitlines()


def test_database_has_the_url_and_secrets_of_its_comment() -> None:
    text = (KUBERNETES / "mariadb.yaml").read_text()
    manifests = read("mariadb.yaml")
    service, stateful = manifests["Service"], manifests["StatefulSet"]
    url = re.search(r"mysql://(\w+)@([\w-]+)/(\w+)", text)
    assert url is not None
    pod = stateful["spec"]["template"]["spec"]
    container = pod["containers"][0]
    variables = {v["name"]: v.get("value") or v["valueFrom"] for v in container["env"]}
    assert url[1] == variables["MARIADB_USER"]
    assert url[2] == service["metadata"]["name"] == stateful["spec"]["serviceName"]
    assert url[3] == variables["MARIADB_DATABASE"]
    for name in ("MARIADB_PASSWORD", "MARIADB_ROOT_PASSWORD"):
        secret = variables[name]["secretKeyRef"]
        # One command of the comment makes the secret, with this key.
        made = (
            rf"create secret generic {secret['name']} .*(?:\n#.*)?--from-literal={secret['key']}="
        )
        assert re.search(made, text)
    assert (
        service["spec"]["selector"].items()
        <= stateful["spec"]["template"]["metadata"]["labels"].items()
    )
    assert_confined(pod)
    assert_volumes_match(pod, stateful["spec"]["volumeClaimTemplates"][0]["metadata"]["name"])


def test_tf_serving_mounts_the_pushed_folder_read_only() -> None:
    manifests = read("serving.yaml")
    pod = manifests["Deployment"]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    (mount,), (volume,) = container["volumeMounts"], pod["volumes"]
    assert mount["subPath"] == pushed_folder()
    assert mount["readOnly"] is True
    # Were the claim not read-only, the node would make the missing folder, and root own it.
    assert volume["persistentVolumeClaim"] == {"claimName": claim_name(), "readOnly": True}
    assert f"--model_base_path={mount['mountPath']}" in container["args"]
    assert f"--model_name={DIGITS.name}" in container["args"]
    for probe in ("startupProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] == f"/v1/models/{DIGITS.name}"
    assert pod["securityContext"]["runAsUser"] == USER
    assert_confined(pod)
    assert_volumes_match(pod)


def test_scopeline_server_mounts_the_pushed_folder_and_has_valid_options() -> None:
    manifests = read("server.yaml")
    pod = manifests["Deployment"]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    mount, _ = container["volumeMounts"]
    assert (mount["subPath"], mount["readOnly"]) == (pushed_folder(), True)
    volume = pod["volumes"][0]["persistentVolumeClaim"]
    assert volume == {"claimName": claim_name(), "readOnly": True}
    command, *arguments = container["args"]
    known = typer.main.get_command(local_runner.app).commands[command]  # type: ignore[attr-defined]
    given = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert given.keys() <= {name for option in known.params for name in option.opts}
    assert (given["--model"], given["--name"]) == (mount["mountPath"], DIGITS.name)
    assert given["--port"] == str(container["ports"][0]["containerPort"])
    # Else it would refuse to listen at all addresses.
    assert container["env"][0]["name"] == KEY_VARIABLE
    paths = {probe: container[probe]["httpGet"]["path"] for probe in PROBES}
    assert set(paths.values()) <= set(OPEN_PATHS)
    # Longer than the server takes to answer what has come.
    assert pod["terminationGracePeriodSeconds"] > SERVER_GRACE_SECONDS
    assert pod["securityContext"]["runAsUser"] == USER
    assert_confined(pod)
    assert_volumes_match(pod)


def test_service_policy_monitor_and_autoscaler_select_scopeline_server() -> None:
    manifests = read("server.yaml")
    deployment = manifests["Deployment"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert "replicas" not in deployment["spec"]
    service, policy = manifests["Service"], manifests["NetworkPolicy"]["spec"]
    monitor = read("service-monitor.yaml")["ServiceMonitor"]["spec"]
    for selector in (
        service["spec"]["selector"],
        policy["podSelector"]["matchLabels"],
        monitor["selector"]["matchLabels"],
    ):
        assert selector == labels == service["metadata"]["labels"]
    (port,) = service["spec"]["ports"]
    assert policy["ingress"][0]["ports"][0]["port"] == port["targetPort"]
    assert policy["egress"] == []
    scaler = manifests["HorizontalPodAutoscaler"]["spec"]
    assert scaler["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    metrics = Metrics(lambda: 0.0, lambda: 0.0, lambda: 0.0).text().decode()
    assert f"\n{scaler['metrics'][0]['pods']['metric']['name']} " in metrics
    (endpoint,) = monitor["endpoints"]
    assert endpoint["port"] == port["name"]
    variable = deployment["spec"]["template"]["spec"]["containers"][0]["env"][0]
    assert endpoint["authorization"]["credentials"] == variable["valueFrom"]["secretKeyRef"]


def test_commands_in_comments_apply_their_files() -> None:
    paths = sorted(KUBERNETES.glob("*.yaml"))
    for path in paths:
        command = re.search(r"kubectl apply .* (?:-f|--filename) (\S+)", path.read_text())
        assert command is not None, path
        assert ROOT / command[1] == path
