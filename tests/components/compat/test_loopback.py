"""Beam's servers, which no other machine reaches, or there is no run."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import apache_beam as beam
import grpc
import pytest
from apache_beam.runners.portability.fn_api_runner import worker_handlers

from components.compat.beam import check_listening, listen_on_loopback
from trainer_module.errors import InternalError
from trainer_module.strategies.network import find_exposed

REFUSED = rf"^Scopeline cannot restrict the ports that Beam {beam.__version__} opens "


@pytest.fixture(autouse=True)
def unchanged() -> Iterator[Any]:
    """Beam's module, whose `grpc` is its own again when the test is done."""
    module: Any = worker_handlers
    before = module.grpc
    yield module
    module.grpc = before


@pytest.mark.parametrize("address", ["[::]:0", ":0"])
def test_beams_servers_listen_on_the_loopback(unchanged: Any, address: str) -> None:
    listen_on_loopback()
    listen_on_loopback()
    before = find_exposed()
    server = unchanged.grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port(address)
    server.start()
    try:
        socket.create_connection(("localhost", port)).close()
        assert find_exposed() == before
        check_listening()
    finally:
        server.stop(None).wait()


def test_exposed_server_of_beam_is_refused() -> None:
    with socket.create_server(("", 0)):
        listen_on_loopback()
        check_listening()
        server = grpc.server(ThreadPoolExecutor(1))
        server.add_insecure_port("[::]:0")
        try:
            with pytest.raises(InternalError, match=REFUSED):
                check_listening()
        finally:
            server.stop(None).wait()
