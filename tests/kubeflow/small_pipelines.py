"""Compiles small pipelines whose containers are shell scripts.

Without postponed annotations: kfp reads those of components and pipelines.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kfp import compiler, dsl

IMAGE_ENV = {"PATH": "/usr/bin:/bin"}
"""What the image of a shell sets."""


def step(name: str, script: str, *, word: Any = "", number: Any = 0) -> Any:
    """A task called `name` that runs a script; `$1` is the word, `$2` the number."""

    def container(script: str, word: str, number: int) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(
            image="registry.example.com/shell:1",
            command=["/bin/sh", "-ceu"],
            args=[script, name, word, number],
        )

    container.__name__ = name
    task = dsl.container_component(container)(script=script, word=word, number=number)
    return task.set_caching_options(False)


def compiled(build: Callable[..., Any]) -> str:
    """The YAML of a pipeline function."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pipeline.yaml"
        compiler.Compiler().compile(dsl.pipeline(name="small")(build), str(path))
        return path.read_text()
