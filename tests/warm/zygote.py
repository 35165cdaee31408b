"""A process that has imported the libraries, and forks the programs that are ordered from it.

    python -P -c "from warm.zygote import main; main()" DESCRIPTOR LIBRARY...

The descriptor is a listening Unix socket. It is the product's fork server, see `forking` there, and
ends, with all processes that still run, when its standard input does. It runs nothing but imports:
no thread, and no TensorFlow runtime, which a fork would break. None of the product's modules is
among them but that one: each process imports those itself, as it would from the start.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import os
import shutil
import socket
import sys
from pathlib import Path

import warm.becoming
from warm.product import forking


def main() -> None:
    """Imports, then serves; a forked process runs `warm.becoming.run`."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    address = listener.getsockname()
    # They were for the zygote alone.
    sys.path.remove(str(Path(__file__).parents[1]))
    os.environ.pop("PYTHONPATH")
    before = dict(os.environ)
    for library in sys.argv[2:]:
        importlib.import_module(library)
    added = {name: value for name, value in os.environ.items() if before.get(name) != value}
    warm.becoming.zygote = warm.becoming.Zygote(address, added)
    # It goes through all modules at its first call, for which Pydantic is enough.
    inspect.getmodule(main.__code__)
    # What is never collected is never written to, and stays shared with the forked processes.
    gc.collect()
    gc.freeze()

    def forget() -> None:
        shutil.rmtree(Path(address).parent, ignore_errors=True)

    forking.Server(listener, sys.stdin.fileno(), forget).serve()
