"""Compiles from a stack of few frames."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from pipeline.config.settings import PipelineConfig
from pipeline.kubeflow.compiled import CompiledPipeline


def compile_shallow(config: PipelineConfig) -> CompiledPipeline:
    """Compiles in a thread: kfp reads the sources of all callers whenever a step is told something.

    That is nothing for a command, and seconds below a test's dozens of frames.
    """
    from pipeline.kubeflow.compiling.compiler import compile_pipeline

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(compile_pipeline, config).result()
