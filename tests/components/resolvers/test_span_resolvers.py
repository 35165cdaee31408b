"""Windows of spans, their statistics and caches, in runs of small pipelines by TFX."""

# Annotations stay objects here, not text: TFX reads those of the components.

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ml_metadata.proto import metadata_store_pb2 as pb
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.dsl.components.base.base_node import BaseNode
from tfx.dsl.components.common.resolver import Resolver
from tfx.orchestration import metadata
from tfx.orchestration.pipeline import Pipeline
from tfx.proto import range_config_pb2
from tfx.types import Channel
from tfx.types.standard_artifacts import Examples, ExampleStatistics, TransformCache

from components.resolvers import (
    OlderAnalyzerCacheStrategy,
    SpanWindowStrategy,
    StatisticsOfSpanStrategy,
)
from pipeline.records.summary import State
from pipeline.runs.local import ComponentFailedError, LocalRunner

ALL_EXAMPLES = Channel(type=Examples, producer_component_id="ExampleGen")


@component
def Read(  # noqa: N802 - a component
    examples: OutputArtifact[Examples],
    span: Parameter[int],
    version: Parameter[int] = 0,
    content: Parameter[str] = "",
):
    """Examples as ExampleGen leaves them; another content, another input to be cached by."""
    examples.set_int_custom_property("span", span)
    if version:
        examples.set_int_custom_property("version", version)


@component
def Count(  # noqa: N802 - a component
    examples: InputArtifact[Examples], statistics: OutputArtifact[ExampleStatistics]
):
    """Statistics that do not know their span, as those of StatisticsGen do not."""


@component
def Compare(previous: InputArtifact[ExampleStatistics] = None):  # noqa: N802
    """Takes what there is."""


@component
def Analyse(  # noqa: N802 - a component
    examples: InputArtifact[list[Examples]],
    updated: OutputArtifact[TransformCache],
    analyzer_cache: InputArtifact[TransformCache] = None,
):
    """Takes a window, as Transform does."""


class Runs:
    """Runs pipelines over one metadata store."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.connection = metadata.sqlite_metadata_connection_config(str(root / "metadata.db"))
        self.states: dict[str, State] = {}
        self.executions: dict[str, int | None] = {}
        self._number = 0

    def run(self, *nodes: BaseNode) -> None:
        self._number += 1
        pipeline = Pipeline(
            pipeline_name="spans",
            pipeline_root=str(self.root / "artifacts"),
            components=list(nodes),
            enable_cache=True,
            metadata_connection_config=self.connection,
        )
        LocalRunner(f"run-{self._number}", self).run(pipeline)

    def started(self, component: str) -> None:
        del component

    def finished(self, component: str, state: State, seconds: float, execution: int | None) -> None:
        del seconds
        self.states[component] = state
        self.executions[component] = execution

    def read(self, span: int, version: int = 0, content: str = "") -> int:
        """Reads a span and counts it; the id of its Examples."""
        read = Read(span=span, version=version, content=content).with_id("ExampleGen")
        self.run(read, Count(examples=read.outputs["examples"]).with_id("StatisticsGen"))
        (examples,) = self.took("StatisticsGen", "examples")
        return examples

    def took(self, component: str, key: str) -> list[int]:
        """The ids of a component's inputs in the latest run, in order."""
        return self._linked(component, key, pb.Event.INPUT)

    def gave(self, component: str, key: str) -> list[int]:
        """The ids of its outputs."""
        return self._linked(component, key, pb.Event.OUTPUT)

    def _linked(self, component: str, key: str, kind: int) -> list[int]:
        with metadata.Metadata(self.connection) as handle:
            events = handle.store.get_events_by_execution_ids([self.executions[component]])
        found = [e for e in events if e.type == kind and e.path.steps[0].key == key]
        return [e.artifact_id for e in sorted(found, key=lambda e: e.path.steps[1].index)]


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def window(spans: Sequence[int]) -> Resolver:
    return Resolver(
        strategy_class=SpanWindowStrategy, config={"spans": list(spans)}, examples=ALL_EXAMPLES
    ).with_id("WindowResolver")


def analyse(runs: Runs, spans: Sequence[int]) -> list[int]:
    """Analyses a window with an older cache; the id of that cache, if there was one."""
    examples = window(spans)
    caches = Resolver(
        strategy_class=OlderAnalyzerCacheStrategy,
        examples=examples.outputs["examples"],
        analyzer_cache=Channel(type=TransformCache),
    ).with_id("AnalyzerCacheResolver")
    transform = Analyse(
        examples=examples.outputs["examples"],
        analyzer_cache=caches.outputs["analyzer_cache"],
    ).with_id("Transform")
    runs.run(examples, caches, transform)
    return runs.took("Transform", "analyzer_cache")


def compare(runs: Runs, span: int) -> list[int]:
    """Looks for the statistics of a span; their id, if there are any."""
    previous = Resolver(
        strategy_class=StatisticsOfSpanStrategy,
        config={"span": span},
        examples=ALL_EXAMPLES,
        statistics=Channel(type=ExampleStatistics, producer_component_id="StatisticsGen"),
    ).with_id("PreviousStatisticsResolver")
    runs.run(previous, Compare(previous=previous.outputs["statistics"]).with_id("Validator"))
    return runs.took("Validator", "previous")


def test_window_has_the_latest_version_of_each_span(runs: Runs) -> None:
    first, third = runs.read(1), runs.read(3)
    runs.read(2)
    runs.read(4, version=1)
    fourth = runs.read(4, version=2)
    runs.read(5)
    analyse(runs, [4, 3, 1])
    assert runs.took("Transform", "examples") == [first, third, fourth]


def test_restored_data_is_taken_from_the_cache(runs: Runs) -> None:
    first = runs.read(1, content="this")
    statistics = runs.gave("StatisticsGen", "statistics")
    runs.read(1, content="that")
    assert runs.read(1, content="this") == first
    assert runs.states["ExampleGen"] is State.CACHED
    analyse(runs, [1])
    assert runs.took("Transform", "examples") == [first]
    assert compare(runs, 1) == statistics


def test_window_with_an_unread_span_fails(runs: Runs, caplog: pytest.LogCaptureFixture) -> None:
    runs.read(1)
    with pytest.raises(ComponentFailedError, match="WindowResolver"):
        analyse(runs, [1, 2, 3])
    assert ": 2, 3" in caplog.text


def test_ranges_of_spans_are_resolved(runs: Runs) -> None:
    for span in (1, 2, 3):
        runs.read(span, content="old")
    read = [runs.read(span) for span in (3, 2, 1)]

    def resolve(**config: Any) -> list[int] | None:
        with metadata.Metadata(runs.connection) as handle:
            artifacts = handle.get_qualified_artifacts(
                [handle.store.get_context_by_type_and_name("pipeline", "spans")],
                type_name="Examples",
            )
            strategy = SpanWindowStrategy(range_config=range_config_pb2.RangeConfig(**config))
            resolved = strategy.resolve_artifacts(handle.store, {"examples": artifacts})
        return resolved and [artifact.id for artifact in resolved["examples"]]

    assert resolve(rolling_range=range_config_pb2.RollingRange(num_spans=2)) == [read[1], read[0]]
    only = range_config_pb2.StaticRange(start_span_number=1, end_span_number=1)
    assert resolve(static_range=only) == [read[2]]
    later = range_config_pb2.StaticRange(start_span_number=7, end_span_number=9)
    assert resolve(static_range=later) is None


@pytest.mark.slow
def test_missing_statistics_of_a_span_are_no_failure(runs: Runs) -> None:
    runs.read(1)
    runs.run(Read(span=2).with_id("ExampleGen"))
    for span in (2, 3):
        assert compare(runs, span) == []
        assert runs.states["Validator"] in (State.RAN, State.CACHED)


def test_moved_window_has_the_latest_analyzer_cache(runs: Runs) -> None:
    for span in (1, 2, 3):
        runs.read(span)
    assert analyse(runs, [1, 2]) == []
    (first,) = runs.gave("Transform", "updated")
    assert analyse(runs, [2, 3]) == [first]
    (second,) = runs.gave("Transform", "updated")
    runs.read(4)
    assert analyse(runs, [3, 4]) == [second]
