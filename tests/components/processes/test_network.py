"""Ports of local clusters, which answer this machine alone."""

from __future__ import annotations

import json
import shlex
import shutil
import socket
import subprocess
import sys

import pytest

from components.processes.ports import answers, free_ports
from tests.support import SUPPORT, warm
from trainer_module.errors import TrainingError
from trainer_module.strategies.network import find_exposed, keep_port_local, kept_local
from trainer_module.tf_config import TFConfig


def can_make_networks() -> bool:
    """Whether this machine lets its users have networks of their own."""
    if not (shutil.which("unshare") and shutil.which("ip")):
        return False
    command = "unshare --map-root-user --net ip link add ours type veth"
    return subprocess.run(shlex.split(command), capture_output=True).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not can_make_networks(), reason="needs ip and network namespaces")
def test_other_machines_are_refused_even_while_servers_start() -> None:
    script = SUPPORT / "network_attack.py"
    done = warm.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["open"] > 0, "the other machine reaches what is open"
    expected = {"made": 0, "answered": 0, "own": True}
    assert found["rounds"] == [expected] * len(found["rounds"])


def task(host: str, other: str = "localhost") -> TFConfig:
    return TFConfig({"worker": [f"{host}:{free_ports(1)[0]}", f"{other}:1"]}, "worker", 0)


def port_of(config: TFConfig) -> int:
    return int(config.address.rpartition(":")[2])


def listen(port: int, shares: bool = True) -> socket.socket:
    """Listens as gRPC does."""
    server = socket.socket(socket.AF_INET6)
    server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(shares))
    server.bind(("", port))
    server.listen()
    return server


@pytest.mark.parametrize("host", ["localhost", "127.0.0.2", "[::1]"])
def test_a_server_that_shares_its_port_is_kept_local(host: str) -> None:
    config = task(host)
    with listen(0):
        before = find_exposed()
        with kept_local(config):
            server = listen(port_of(config))
        with server:
            assert find_exposed() == before
            assert answers(f"localhost:{port_of(config)}")
            assert answers(f"127.0.0.1:{port_of(config)}")


def test_servers_of_a_cluster_with_other_machines_are_left_alone() -> None:
    for config in (task("localhost", "worker-1.example"), task("worker-0.example"), None):
        before = find_exposed()
        with kept_local(config):
            server = listen(port_of(config) if config else 0)
        with server:
            assert len(find_exposed()) == len(before) + 1


def test_exposed_server_is_ended() -> None:
    expected = pytest.raises(TrainingError, match=r"^TensorFlow listened on port \d+, which ")
    with expected, kept_local(task("localhost")):
        server = listen(0, shares=False)
    with server:
        assert not answers(f"localhost:{server.getsockname()[1]}")


def test_the_port_of_another_process_is_not_shared() -> None:
    config = task("localhost")
    with listen(port_of(config)), pytest.raises(OSError, match="Address already in use"):
        keep_port_local(config)
