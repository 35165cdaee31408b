"""ML Metadata's gRPC service over a real store in this process.

The server's own program is in no Python package; the store that it wraps is, with its methods.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from ml_metadata.metadata_store.pywrap.metadata_store_extension import (
    metadata_store as native,
)
from ml_metadata.proto import metadata_store_pb2

SERVICE = "/ml_metadata.MetadataStoreService/"
CODES = {code.value[0]: code for code in grpc.StatusCode}


class _Methods(grpc.GenericRpcHandler):
    """Passes every call on to the store, one at a time, as SQLite wants it."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.calls: list[str] = []
        self._lock = threading.Lock()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        name = details.method.removeprefix(SERVICE)
        method = getattr(native, name, None)
        if method is None:
            return None

        def call(request: bytes, context: grpc.ServicerContext) -> bytes:
            with self._lock:
                self.calls.append(name)
                response, message, status = method(self.store, request)
            if status:
                context.abort(CODES[status], message.decode())
            return bytes(response)

        return grpc.unary_unary_rpc_method_handler(call)


@contextmanager
def metadata_service(path: Path, host: str = "127.0.0.1") -> Iterator[tuple[str, list[str]]]:
    """Serves a SQLite file; gives its URL, and the names of the calls as they come."""
    config = metadata_store_pb2.ConnectionConfig()
    config.sqlite.filename_uri = str(path)
    config.sqlite.connection_mode = 3
    store = native.CreateMetadataStore(
        config.SerializeToString(), metadata_store_pb2.MigrationOptions().SerializeToString()
    )
    methods = _Methods(store)
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers([methods])
    port = server.add_insecure_port(f"{host}:0")
    server.start()
    try:
        yield f"grpc://{host}:{port}", methods.calls
    finally:
        server.stop(grace=1)
