"""Resolver strategies, which select the spans, statistics, caches and earlier models of a run."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
from typing import Any

import ml_metadata as mlmd
from ml_metadata.proto import metadata_store_pb2
from tfx.components.evaluator import constants
from tfx.components.example_gen import utils
from tfx.dsl.components.common import resolver
from tfx.dsl.input_resolution.strategies import span_range_strategy
from tfx.proto import range_config_pb2
from tfx.types import artifact
from tfx.types.standard_component_specs import (
    ANALYZER_CACHE_KEY,
    EXAMPLES_KEY,
    MODEL_BLESSING_KEY,
    MODEL_KEY,
    STATISTICS_KEY,
)

from components.evaluator.intervals import BASELINE_EXAMPLES_KEY
from components.pusher.versions import WAITING_PROPERTY, WITHDRAWN_PROPERTY
from components.split_files import Artifacts
from trainer_module.errors import DataError

CANDIDATE_KEY = "candidate"


class LatestOtherBlessedModelStrategy(resolver.ResolverStrategy):
    """A strategy that resolves the latest blessed model that is not the candidate and was not
    withdrawn.

    In a rerun without changes, TFX's LatestBlessedModelStrategy resolves the candidate itself. The
    Evaluator would compare the model with itself, and would never be cached.
    """

    def resolve_artifacts(self, store: mlmd.MetadataStore, input_dict: Artifacts) -> Artifacts:
        """Resolves the model, its blessing and ExampleGen's Examples of its training data.

        The lists are empty if there is no such model.

        Args:
          input_dict: the candidate of the run, and all models, blessings and Examples of the
            pipeline. The Examples are those of ExampleGen.
        """
        candidates = {model.id for model in input_dict[CANDIDATE_KEY]}
        blessings = _blessings(input_dict[MODEL_BLESSING_KEY])
        latest = [
            model
            for model in _blessed_models(input_dict[MODEL_KEY], blessings)
            if model.id not in candidates
        ][:1]
        resolved = {
            CANDIDATE_KEY: input_dict[CANDIDATE_KEY],
            MODEL_KEY: latest,
            MODEL_BLESSING_KEY: [blessings[model.id] for model in latest],
        }
        # The key is absent if the family of tasks reads its data without ExampleGen.
        if BASELINE_EXAMPLES_KEY in input_dict:
            ids = {number for model in latest for number in _training_examples(store, model.id)}
            resolved[BASELINE_EXAMPLES_KEY] = [
                examples for examples in input_dict[BASELINE_EXAMPLES_KEY] if examples.id in ids
            ]
        return resolved


class WarmStartModelStrategy(resolver.ResolverStrategy):
    """A strategy that resolves the latest blessed model that was not withdrawn and was trained on
    other Examples.

    The latest model may be the model of the previous run. If a rerun on the same Examples started
    from this model, Trainer would have a new input in every run, and would never be cached. The
    strategy skips models of the same Examples, so that a rerun resolves the same model as the run
    before.
    """

    def resolve_artifacts(self, store: mlmd.MetadataStore, input_dict: Artifacts) -> Artifacts:
        """Resolves the model and its blessing. Both lists are empty if there is no such model.

        Args:
          input_dict: all models and blessings of the pipeline, and ExampleGen's Examples of this
            run's training data.
        """
        examples = {item.id for item in input_dict[EXAMPLES_KEY]}
        blessings = _blessings(input_dict[MODEL_BLESSING_KEY])
        blessed = _blessed_models(input_dict[MODEL_KEY], blessings)
        latest = [model for model in blessed if _training_examples(store, model.id) != examples][:1]
        return {
            EXAMPLES_KEY: input_dict[EXAMPLES_KEY],
            MODEL_KEY: latest,
            MODEL_BLESSING_KEY: [blessings[model.id] for model in latest],
        }


def _blessings(blessings: list[artifact.Artifact]) -> dict[int, artifact.Artifact]:
    """Returns the positive blessings by the model's id. Models that wait to be pushed are left
    out.
    """
    return {
        blessing.get_int_custom_property(constants.ARTIFACT_PROPERTY_CURRENT_MODEL_ID_KEY): blessing
        for blessing in blessings
        if blessing.get_int_custom_property(constants.ARTIFACT_PROPERTY_BLESSED_KEY)
        == constants.BLESSED_VALUE
        and not blessing.get_int_custom_property(WAITING_PROPERTY)
    }


def _blessed_models(
    models: list[artifact.Artifact], blessings: dict[int, artifact.Artifact]
) -> list[artifact.Artifact]:
    """Returns the blessed models that were not withdrawn, the newest first."""
    blessed = [
        model
        for model in models
        if model.id in blessings and not model.get_int_custom_property(WITHDRAWN_PROPERTY)
    ]
    return sorted(blessed, key=lambda model: model.id, reverse=True)


class SpanWindowStrategy(span_range_strategy.SpanRangeStrategy):
    """A strategy that resolves one artifact for each span of a window, the oldest span first.

    TFX's SpanRangeStrategy resolves all artifacts that a span has ever had. After a correction of
    the data, the model would be trained on both the wrong and the corrected data.
    """

    def __init__(
        self,
        spans: Sequence[int] | None = None,
        range_config: range_config_pb2.RangeConfig | None = None,
    ) -> None:
        """Sets the spans of the window.

        Args:
          spans: the numbers of the spans, which may have gaps, or None for a range.
          range_config: the range for TFX's strategy, if `spans` is None.
        """
        if spans is not None:
            range_config = range_config_pb2.RangeConfig(
                static_range=range_config_pb2.StaticRange(
                    start_span_number=min(spans), end_span_number=max(spans)
                )
            )
        super().__init__(range_config)
        self._spans = None if spans is None else frozenset(spans)

    def resolve_artifacts(
        self, store: mlmd.MetadataStore, input_dict: Artifacts
    ) -> Artifacts | None:
        """Resolves one artifact per span for every input, or None if an input has no artifact.

        Args:
          input_dict: all artifacts of each input, which have spans, such as Examples.

        Raises:
          DataError: one of the `spans` has no artifact.
        """
        in_range = super().resolve_artifacts(store, input_dict) or {key: [] for key in input_dict}
        resolved = {}
        for key, artifacts in in_range.items():
            by_span = _current_artifacts(store, artifacts)
            if self._spans is not None:
                if missing := sorted(self._spans - by_span.keys()):
                    raise DataError(
                        f"the window contains spans that no run has read yet:"
                        f" {', '.join(map(str, missing))}"
                    )
                by_span = {span: by_span[span] for span in self._spans}
            resolved[key] = [by_span[span] for span in sorted(by_span)]
        return resolved if all(resolved.values()) else None


class StatisticsOfSpanStrategy(resolver.ResolverStrategy):
    """A strategy that resolves the statistics of a span's current examples.

    StatisticsGen does not copy the span of its examples to the statistics, so the strategy finds
    the statistics of the examples in the metadata store.
    """

    def __init__(self, span: int) -> None:
        self._span = span

    def resolve_artifacts(self, store: mlmd.MetadataStore, input_dict: Artifacts) -> Artifacts:
        """Resolves the examples and their statistics. Both lists are empty if either is missing.

        Args:
          input_dict: all `examples` of the pipeline's ExampleGen, and all `statistics` of its
            StatisticsGen.
        """
        examples = _current_artifacts(store, input_dict[EXAMPLES_KEY]).get(self._span)
        statistics = input_dict[STATISTICS_KEY]
        makers = _executions_by_output(store, (s.id for s in statistics))
        inputs = _inputs_by_execution(store, (e for ids in makers.values() for e in ids))
        matching = [
            candidate
            for candidate in statistics
            if examples and any(examples.id in inputs[e] for e in makers[candidate.id])
        ]
        newest = sorted(matching, key=lambda candidate: candidate.id)[-1:]
        return {EXAMPLES_KEY: [examples] if newest else [], STATISTICS_KEY: newest}


class OlderAnalyzerCacheStrategy(resolver.ResolverStrategy):
    """A strategy that resolves the newest analyzer cache of another window.

    If a rerun without changes resolved the cache of its own window, Transform would have another
    input than in the run before, and would not be cached.
    """

    def resolve_artifacts(self, store: mlmd.MetadataStore, input_dict: Artifacts) -> Artifacts:
        """Resolves the cache. The list is empty if there is no such cache.

        Args:
          input_dict: all `analyzer_cache` artifacts of the pipeline's Transform, and the `examples`
            of this run's window.
        """
        window = {examples.id for examples in input_dict[EXAMPLES_KEY]}
        caches = input_dict[ANALYZER_CACHE_KEY]
        makers = _executions_by_output(store, (c.id for c in caches))
        ids = {execution for executions in makers.values() for execution in executions}
        complete = {
            execution.id
            for execution in store.get_executions_by_id(sorted(ids))
            if execution.last_known_state == metadata_store_pb2.Execution.COMPLETE
        }
        inputs = _inputs_by_execution(store, complete)
        other = [
            cache
            for cache in caches
            if any(e in complete and inputs[e] != window for e in makers[cache.id])
        ]
        newest = sorted(other, key=lambda cache: cache.id)[-1:]
        return {EXAMPLES_KEY: input_dict[EXAMPLES_KEY], ANALYZER_CACHE_KEY: newest}


def _current_artifacts(
    store: mlmd.MetadataStore, artifacts: Sequence[artifact.Artifact]
) -> dict[int, artifact.Artifact]:
    """Returns the artifact of each span that the latest execution for the span has returned.

    This artifact need not be the newest artifact or have the latest version. If a file was changed
    and changed back, or a version was withdrawn, the component is cached and returns an earlier
    artifact.
    """
    makers = _executions_by_output(store, (a.id for a in artifacts))

    def rank(candidate: artifact.Artifact) -> tuple[int, int, int]:
        version = _int_property(candidate, utils.VERSION_PROPERTY_NAME)
        return max(makers[candidate.id], default=0), version, candidate.id

    # In the dict, later artifacts of a span replace earlier artifacts.
    return {
        _int_property(candidate, utils.SPAN_PROPERTY_NAME): candidate
        for candidate in sorted(artifacts, key=rank)
        if candidate.has_custom_property(utils.SPAN_PROPERTY_NAME)
    }


def _int_property(candidate: artifact.Artifact, name: str) -> int:
    """Returns a custom property as a number, or 0 if it is not set. Older versions of TFX wrote the
    number as text.
    """
    text = candidate.get_string_custom_property(name)
    return int(text) if text else candidate.get_int_custom_property(name)


def _training_examples(store: mlmd.MetadataStore, model: int) -> set[int]:
    """Returns the ids of ExampleGen's Examples of a model's training data.

    Trainer's inputs are the Examples that Transform has written, whose inputs are ExampleGen's.
    """
    return _input_examples(store, _input_examples(store, {model}))


def _input_examples(store: mlmd.MetadataStore, artifacts: Iterable[int]) -> set[int]:
    """Returns the ids of the input examples of the executions that produced artifacts."""
    makers = set[int]().union(*_executions_by_output(store, artifacts).values())
    return set[int]().union(*_inputs_by_execution(store, makers).values())


def _executions_by_output(
    store: mlmd.MetadataStore, artifacts: Iterable[int]
) -> dict[int, set[int]]:
    """Returns the ids of the executions that have returned each artifact, by the artifact's id.

    An execution may have produced the artifact or have taken it from the cache.
    """
    executions: dict[int, set[int]] = collections.defaultdict(set)
    for event in _events(store.get_events_by_artifact_ids, sorted(artifacts)):
        if event.type == metadata_store_pb2.Event.OUTPUT:
            executions[event.artifact_id].add(event.execution_id)
    return executions


def _inputs_by_execution(
    store: mlmd.MetadataStore, executions: Iterable[int]
) -> dict[int, set[int]]:
    """Returns the ids of the input examples of each execution, by the execution's id."""
    inputs: dict[int, set[int]] = collections.defaultdict(set)
    for event in _events(store.get_events_by_execution_ids, sorted(set(executions))):
        keys = [step.key for step in event.path.steps if step.HasField("key")]
        if event.type == metadata_store_pb2.Event.INPUT and EXAMPLES_KEY in keys:
            inputs[event.execution_id].add(event.artifact_id)
    return inputs


def _events(query: Any, ids: Sequence[int]) -> Sequence[metadata_store_pb2.Event]:
    """Returns the events of some artifacts or executions. Without ids, the store is not queried, as
    it raises an error for an empty list.
    """
    return query(ids) if ids else []
