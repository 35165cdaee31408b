"""What a run relies on in TFX's executors and Beam's workers is refused where it is another."""

from __future__ import annotations

from typing import Any

import pytest
from apache_beam.runners.worker.sdk_worker import SdkHarness
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor

from components.compat.beam import DescribingHarness
from components.compat.tfx import make_beam_pipeline
from trainer_module.errors import InternalError


class Executor(BaseBeamExecutor):
    """Computes nothing."""

    def Do(self, *arguments: Any) -> None:  # noqa: N802 - TFX's name
        """Does nothing."""


def _other(*arguments: Any) -> None:
    """In the place of an inside."""


@pytest.mark.slow
def test_a_pipeline_has_the_options_of_its_component(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--runner=DirectRunner", "--direct_num_workers=1"]
    executor = Executor(BaseBeamExecutor.Context(beam_pipeline_args=arguments))
    options = make_beam_pipeline(executor).options.get_all_options()
    assert options["direct_num_workers"] == 1
    monkeypatch.setattr(BaseBeamExecutor, "_make_beam_pipeline", _other)
    with pytest.raises(InternalError, match=r"Beam pipeline cannot be relied on .*_make_beam_"):
        make_beam_pipeline(executor)
    monkeypatch.delattr(BaseBeamExecutor, "_make_beam_pipeline")
    with pytest.raises(InternalError, match=r"_make_beam_pipeline is missing"):
        make_beam_pipeline(executor)


def test_unknown_beam_is_refused_by_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SdkHarness, "_execute", _other)
    with pytest.raises(InternalError, match=r"the errors of Beam's workers .*_execute has"):
        DescribingHarness(str, "localhost:1")
