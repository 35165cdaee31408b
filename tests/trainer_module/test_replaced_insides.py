"""TFX's own components call what replaces the insides of their libraries."""

from __future__ import annotations

from collections import Counter
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from apache_beam.internal.cloudpickle import cloudpickle
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms import core, userstate
from tensorflow_transform import graph_tools
from tensorflow_transform.beam import impl
from tfx.components.statistics_gen.executor import Executor as StatisticsExecutor
from tfx.components.transform.executor import TransformProcessor
from tfx.components.util import tfxio_utils
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.types import standard_artifacts
from tfx_bsl.coders import batch_util

from components.beam_workers.options import IN_PROCESS_ARGS
from components.compat import tft
from components.compat.speed import speed_up
from components.compat.tfx_bsl import BatchedExamples
from tests.support.trainer_data import run_transform
from trainer_module.settings import TrainerSettings

CALLED: dict[str, tuple[Any, str]] = {
    "views of options": (PipelineOptions, "view_as"),
    "states of a DoFn": (userstate, "get_dofn_specs"),
    "signatures": (core, "get_signature"),
    "modules that a function uses": (cloudpickle, "_find_imported_submodules"),
    "makes readers": (tfxio_utils, "make_tfxio"),
    "reads by batches": (BatchedExamples, "BeamSource"),
    "writes by batches": (TransformProcessor, "_EncodeAndWrite"),
    "sources": (tft, "_retrieve_sources"),
    "source keys": (graph_tools, "_retrieve_source_keys"),
    "sets values": (graph_tools, "_set_unique_value_in_dict"),
    "inputs of outputs": (graph_tools.InitializableGraphAnalyzer, "get_dependent_inputs"),
    "loads graphs": (impl._RunMetaGraphDoFn, "_GraphStateV2"),
}


def files_of(function: Any) -> list[str]:
    """The file of a function, and that of each which a decorator has put another around."""
    inner = [cell.cell_contents for cell in function.__closure__ or ()]
    return [f.__code__.co_filename for f in (function, *inner) if hasattr(f, "__code__")]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each of `CALLED` is called, once everything is quick."""
    speed_up()
    counts = Counter[str]()

    def counting(name: str, function: Any) -> Any:
        @wraps(function)
        def counted(*arguments: Any, **options: Any) -> Any:
            counts[name] += 1
            return function(*arguments, **options)

        return counted

    for name, (owner, attribute) in CALLED.items():
        function = getattr(owner, attribute)
        is_replaced = any("/components/compat/" in file for file in files_of(function))
        assert is_replaced, name
        is_static = isinstance(vars(owner).get(attribute), staticmethod)
        made = counting(name, function)
        monkeypatch.setattr(owner, attribute, staticmethod(made) if is_static else made)
    return counts


@pytest.mark.slow
def test_each_replacement_is_called(tmp_path: Path, calls: Counter[str]) -> None:
    rows = [{"number": row / 7, "label": row % 2} for row in range(40)]
    settings = {"task": "binary", "label": "label", "features": {"number": {"type": "numeric"}}}
    transformed = run_transform(tmp_path, rows, rows, TrainerSettings.model_validate(settings))
    examples, found = standard_artifacts.Examples(), standard_artifacts.ExampleStatistics()
    examples.uri, found.uri = str(transformed.root / "raw"), str(tmp_path / "statistics")
    examples.split_names = '["train", "eval"]'
    context = BaseBeamExecutor.Context(
        beam_pipeline_args=list(IN_PROCESS_ARGS), tmp_dir=str(tmp_path / "tmp"), unique_id="1"
    )
    StatisticsExecutor(context).Do({"examples": [examples]}, {"statistics": [found]}, {})
    assert [name for name in CALLED if not calls[name]] == []
    # Of empty records, too, a batch has no more.
    batches = batch_util.GetBatchElementsKwargs(None)
    assert batches["max_batch_size"] // batches["element_size_fn"](b"") <= 1000
