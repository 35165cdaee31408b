"""Resolver strategies: which spans, statistics, caches and earlier models a run uses."""

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
from trainer_module.errors import DataError

CANDIDATE_KEY = "candidate"


class LatestOtherBlessedModelStrategy(resolver.ResolverStrategy):
    """Resolves the latest blessed model that is not the candidate itself, and was not withdrawn.

    TFX's LatestBlessedModelStrategy resolves, on a rerun without changes, to the candidate: the
    Evaluator would then compare a model with itself, and never be cached.
    """

    def resolve_artifacts(
        self, store: mlmd.MetadataStore, input_dict: dict[str, list[artifact.Artifact]]
    ) -> dict[str, list[artifact.Artifact]]:
        """Resolves the model, its blessing and the Examples that it was trained on, as far as they
        exist.

        The lists are empty if there is no such model.

        Args:
          store: the metadata store, where the Examples of a model are found.
          input_dict: all models, blessings and Examples, as they were read, of the pipeline, and
            this run's candidate.
        """
        candidates = {model.id for model in input_dict[CANDIDATE_KEY]}
        blessings = _blessings(input_dict[MODEL_BLESSING_KEY])
        latest = [
            model
            for model in _blessed_models(input_dict[MODEL_KEY], blessings)
            if model.id not in candidates
        ][:1]
        found = {
            CANDIDATE_KEY: input_dict[CANDIDATE_KEY],
            MODEL_KEY: latest,
            MODEL_BLESSING_KEY: [blessings[model.id] for model in latest],
        }
        if (
            BASELINE_EXAMPLES_KEY in input_dict
        ):  # Absent for a family of tasks that reads its data without ExampleGen.
            behind = {number for model in latest for number in _examples_behind(store, model.id)}
            read = input_dict[BASELINE_EXAMPLES_KEY]
            found[BASELINE_EXAMPLES_KEY] = [one for one in read if one.id in behind]
        return found


class WarmStartModelStrategy(resolver.ResolverStrategy):
    """Resolves the latest blessed model that was not withdrawn and was trained on other Examples.

    The latest model may be the previous run's own. If a rerun on the same Examples started from it,
    Trainer would have a new input each time and train in every run. Skipping the models of the same
    Examples makes the rerun resolve the same model as the run, so that it is cached.
    """

    def resolve_artifacts(
        self, store: mlmd.MetadataStore, input_dict: dict[str, list[artifact.Artifact]]
    ) -> dict[str, list[artifact.Artifact]]:
        """Resolves the model and its blessing; both lists are empty if there is none.

        Args:
          store: the metadata store, where the Examples of a model are found.
          input_dict: all models and blessings of the pipeline, and the Examples, as they were read,
            that this run trains on.
        """
        examples = {item.id for item in input_dict[EXAMPLES_KEY]}
        blessings = _blessings(input_dict[MODEL_BLESSING_KEY])
        blessed = _blessed_models(input_dict[MODEL_KEY], blessings)
        latest = [model for model in blessed if _examples_behind(store, model.id) != examples][:1]
        return {
            EXAMPLES_KEY: input_dict[EXAMPLES_KEY],
            MODEL_KEY: latest,
            MODEL_BLESSING_KEY: [blessings[model.id] for model in latest],
        }


def _blessings(blessings: list[artifact.Artifact]) -> dict[int, artifact.Artifact]:
    """Returns the positive blessings of models that do not wait to be pushed, by the model's id."""
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
    """Returns the models that are blessed and were not withdrawn, newest first."""
    blessed = [
        model
        for model in models
        if model.id in blessings and not model.get_int_custom_property(WITHDRAWN_PROPERTY)
    ]
    return sorted(blessed, key=lambda model: model.id, reverse=True)


Artifacts = dict[str, list[artifact.Artifact]]


class SpanWindowStrategy(span_range_strategy.SpanRangeStrategy):
    """Resolves the spans of a window, each once, oldest first.

    TFX's SpanRangeStrategy returns every artifact that a span ever had: corrected data would be
    trained on together with the wrong data.
    """

    def __init__(
        self,
        spans: Sequence[int] | None = None,
        range_config: range_config_pb2.RangeConfig | None = None,
    ) -> None:
        """Sets the spans of the window.

        Args:
          spans: the numbers of the spans, if the window may have gaps.
          range_config: the range for TFX's strategy, if there are no `spans`.
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
        """Resolves every input to one artifact per span.

        Args:
          store: the metadata store.
          input_dict: all artifacts with a span, such as Examples.

        Raises:
          DataError: one of the `spans` has no artifact.
        """
        in_range = super().resolve_artifacts(store, input_dict) or {key: [] for key in input_dict}
        resolved = {}
        for key, artifacts in in_range.items():
            by_span = _current(store, artifacts)
            if self._spans is not None:
                if missing := sorted(self._spans - by_span.keys()):
                    raise DataError(
                        f"the window contains span {', '.join(map(str, missing))}, which no run"
                        " has read yet"
                    )
                by_span = {span: by_span[span] for span in self._spans}
            resolved[key] = [by_span[span] for span in sorted(by_span)]
        return resolved if all(resolved.values()) else None


class StatisticsOfSpanStrategy(resolver.ResolverStrategy):
    """Resolves the statistics of a span's current data, by lineage.

    StatisticsGen does not copy the span of its examples.
    """

    def __init__(self, span: int) -> None:
        """Sets the number of the span."""
        self._span = span

    def resolve_artifacts(self, store: mlmd.MetadataStore, input_dict: Artifacts) -> Artifacts:
        """Resolves the examples and their statistics; both lists are empty if one is missing.

        Args:
          store: the metadata store.
          input_dict: all `examples` of the pipeline's ExampleGen, all `statistics` of its
            StatisticsGen.
        """
        examples = _current(store, input_dict[EXAMPLES_KEY]).get(self._span)
        statistics = input_dict[STATISTICS_KEY]
        makers = _executions_by_output(store, (s.id for s in statistics))
        counted = _inputs_by_execution(store, (e for made in makers.values() for e in made))
        found = [
            candidate
            for candidate in statistics
            if examples and any(examples.id in counted[e] for e in makers[candidate.id])
        ]
        newest = sorted(found, key=lambda candidate: candidate.id)[-1:]
        return {EXAMPLES_KEY: [examples] if newest else [], STATISTICS_KEY: newest}


class OlderAnalyzerCacheStrategy(resolver.ResolverStrategy):
    """Resolves the newest analyzer cache that was written for another window than this one.

    With the cache of this window, an unchanged rerun would have another input than the run before,
    and Transform would run again instead of being cached.
    """

    def resolve_artifacts(self, store: mlmd.MetadataStore, input_dict: Artifacts) -> Artifacts:
        """Resolves the cache; the list is empty if there is none.

        Args:
          store: the metadata store.
          input_dict: every `analyzer_cache` of the pipeline's Transform; this window's `examples`.
        """
        window = {examples.id for examples in input_dict[EXAMPLES_KEY]}
        caches = input_dict[ANALYZER_CACHE_KEY]
        makers = _executions_by_output(store, (c.id for c in caches))
        ids = {execution for made in makers.values() for execution in made}
        complete = {
            execution.id
            for execution in store.get_executions_by_id(sorted(ids))
            if execution.last_known_state == metadata_store_pb2.Execution.COMPLETE
        }
        analysed = _inputs_by_execution(store, complete)
        other = [
            cache
            for cache in caches
            if any(e in complete and analysed[e] != window for e in makers[cache.id])
        ]
        newest = sorted(other, key=lambda cache: cache.id)[-1:]
        return {EXAMPLES_KEY: input_dict[EXAMPLES_KEY], ANALYZER_CACHE_KEY: newest}


def _current(
    store: mlmd.MetadataStore, artifacts: Sequence[artifact.Artifact]
) -> dict[int, artifact.Artifact]:
    """Returns the artifact of each span that an execution has returned last.

    It is not always the newest one, or the one of the latest version: if a file was changed and
    changed back, or a version was withdrawn, the component is cached and returns an earlier one.
    """
    makers = _executions_by_output(store, (a.id for a in artifacts))

    def rank(candidate: artifact.Artifact) -> tuple[int, int, int]:
        version = _int_property(candidate, utils.VERSION_PROPERTY_NAME)
        return max(makers[candidate.id], default=0), version, candidate.id

    # Later artifacts of a span replace earlier ones in the dictionary.
    return {
        _int_property(candidate, utils.SPAN_PROPERTY_NAME): candidate
        for candidate in sorted(artifacts, key=rank)
        if candidate.has_custom_property(utils.SPAN_PROPERTY_NAME)
    }


def _int_property(candidate: artifact.Artifact, name: str) -> int:
    """Returns a custom property, which older versions of TFX wrote as text; 0 if it is not set."""
    text = candidate.get_string_custom_property(name)
    return int(text) if text else candidate.get_int_custom_property(name)


def _examples_behind(store: mlmd.MetadataStore, model: int) -> set[int]:
    """Returns the ids of the Examples, as they were read, that a model was trained on.

    Trainer's Examples are those that Transform wrote; Transform's are those that were read.
    """
    return _examples_of_makers(store, _examples_of_makers(store, {model}))


def _examples_of_makers(store: mlmd.MetadataStore, artifacts: Iterable[int]) -> set[int]:
    """Returns the ids of the input examples of the executions that produced artifacts."""
    makers = set[int]().union(*_executions_by_output(store, artifacts).values())
    return set[int]().union(*_inputs_by_execution(store, makers).values())


def _executions_by_output(
    store: mlmd.MetadataStore, artifacts: Iterable[int]
) -> dict[int, set[int]]:
    """Returns the executions that produced each artifact, newly or from the cache, by the
    artifact's id.
    """
    executions: dict[int, set[int]] = collections.defaultdict(set)
    for event in _events(store.get_events_by_artifact_ids, sorted(artifacts)):
        if event.type == metadata_store_pb2.Event.OUTPUT:
            executions[event.artifact_id].add(event.execution_id)
    return executions


def _inputs_by_execution(
    store: mlmd.MetadataStore, executions: Iterable[int]
) -> dict[int, set[int]]:
    """Returns the ids of the input examples of each execution, by its id."""
    inputs: dict[int, set[int]] = collections.defaultdict(set)
    for event in _events(store.get_events_by_execution_ids, sorted(set(executions))):
        keys = [step.key for step in event.path.steps if step.HasField("key")]
        if event.type == metadata_store_pb2.Event.INPUT and EXAMPLES_KEY in keys:
            inputs[event.execution_id].add(event.artifact_id)
    return inputs


def _events(query: Any, ids: Sequence[int]) -> Sequence[metadata_store_pb2.Event]:
    """Returns the events of some artifacts or executions; a store raises an error for an empty
    list.
    """
    return query(ids) if ids else []
