"""What a run imports: shared with processes that libraries start, and left alone by the collector.

TFX and TensorFlow make millions of objects. The collector would look through them a dozen times
while they are imported, and again and again while a run makes its own: a fifth of what a run over a
small table computes.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from components.trainer.cluster.local.environment import module_path

YOUNG, MIDDLE, OLD = 20_000, 20, 20
"""Objects until the youngest are looked through, and how often until the next older ones are."""


def is_in_tfx_command_line() -> bool:
    """Whether TFX's own command line runs this: it takes the pipeline, and runs nothing."""
    return "tfx.tools.cli" in sys.modules


@contextmanager
def kept_imports() -> Iterator[None]:
    """Collects no garbage in a `with` block that imports, and never looks at what is there then.

    Processes that are forked afterwards share these objects' memory, as nothing touches it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        keep_imports()
        if was_enabled:
            gc.enable()


def keep_imports() -> None:
    """Tells the collector never to look at what is there now, and seldom at what comes."""
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)


@contextmanager
def shared_module_path() -> Iterator[None]:
    """Lets interpreters that libraries start in a `with` block find the modules that this finds.

    Beam starts some for its workers, where `beam.args` asks for several processes.
    """
    variables = module_path()
    earlier = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in earlier.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
