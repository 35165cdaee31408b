"""Which earlier model a run starts from, and which one it has to beat: strategies for Resolver."""

from __future__ import annotations

import ml_metadata as mlmd
from ml_metadata.proto import metadata_store_pb2
from tfx.components.evaluator import constants
from tfx.dsl.components.common import resolver
from tfx.types import artifact, standard_artifacts
from tfx.types.standard_component_specs import EXAMPLES_KEY, MODEL_BLESSING_KEY, MODEL_KEY

from components.evaluator.noise import BASELINE_EXAMPLES_KEY
from components.pusher.versions import WAITS_PROPERTY, WITHDRAWN_PROPERTY

CANDIDATE_KEY = "candidate"


class LatestOtherBlessedModelStrategy(resolver.ResolverStrategy):
    """The latest blessed model that is not the candidate itself, and was not withdrawn.

    TFX's LatestBlessedModelStrategy resolves, on a rerun with nothing changed, to the candidate:
    the Evaluator would then compare a model with itself, and never be cached.
    """

    def resolve_artifacts(
        self, store: mlmd.MetadataStore, input_dict: dict[str, list[artifact.Artifact]]
    ) -> dict[str, list[artifact.Artifact]]:
        """Resolves the model, its blessing and what it has learnt from, as far as that is there.

        The lists are empty while there is no such model.

        Args:
          store: the metadata store, where the Examples behind a model are found.
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
        if BASELINE_EXAMPLES_KEY in input_dict:  # Not of a family that reads its data by itself.
            behind = {number for model in latest for number in _examples_behind(store, model.id)}
            read = input_dict[BASELINE_EXAMPLES_KEY]
            found[BASELINE_EXAMPLES_KEY] = [one for one in read if one.id in behind]
        return found


class WarmStartModelStrategy(resolver.ResolverStrategy):
    """The latest blessed model that was not withdrawn, and was trained on other Examples.

    A run leaves a model behind that is then the latest. Were it what a rerun on the same Examples
    starts from, Trainer would have a new input each time and train for ever. Skipping the models of
    the same Examples makes the rerun resolve what the run did, and so be cached.
    """

    def resolve_artifacts(
        self, store: mlmd.MetadataStore, input_dict: dict[str, list[artifact.Artifact]]
    ) -> dict[str, list[artifact.Artifact]]:
        """Resolves the model and its blessing; both lists are empty while there is none.

        Args:
          store: the metadata store, where the Examples behind a model are found.
          input_dict: all models and blessings of the pipeline, and the Examples, as they were
            read, that this run trains on.
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
    """Those that bless a model that may be in service, by its id."""
    return {
        blessing.get_int_custom_property(constants.ARTIFACT_PROPERTY_CURRENT_MODEL_ID_KEY): blessing
        for blessing in blessings
        if blessing.get_int_custom_property(constants.ARTIFACT_PROPERTY_BLESSED_KEY)
        == constants.BLESSED_VALUE
        and not blessing.get_int_custom_property(WAITS_PROPERTY)
    }


def _blessed_models(
    models: list[artifact.Artifact], blessings: dict[int, artifact.Artifact]
) -> list[artifact.Artifact]:
    """Those that are blessed and were not withdrawn, newest first."""
    blessed = [
        model
        for model in models
        if model.id in blessings and not model.get_int_custom_property(WITHDRAWN_PROPERTY)
    ]
    return sorted(blessed, key=lambda model: model.id, reverse=True)


def _examples_behind(store: mlmd.MetadataStore, model: int) -> set[int]:
    """The ids of the Examples, as they were read, that a model was trained on.

    Trainer's Examples are those that Transform wrote; Transform's are those that were read.
    """
    transformed = _examples_of(store, _producers(store, {model}))
    return _examples_of(store, _producers(store, transformed))


def _producers(store: mlmd.MetadataStore, artifacts: set[int]) -> set[int]:
    """The executions that have them as outputs: their maker, and runs that took it from cache."""
    events = store.get_events_by_artifact_ids(artifacts) if artifacts else []
    return {event.execution_id for event in events if event.type == metadata_store_pb2.Event.OUTPUT}


def _examples_of(store: mlmd.MetadataStore, executions: set[int]) -> set[int]:
    """The ids of the Examples among the inputs of executions."""
    events = store.get_events_by_execution_ids(executions) if executions else []
    inputs = {event.artifact_id for event in events if event.type == metadata_store_pb2.Event.INPUT}
    artifacts = store.get_artifacts_by_id(inputs) if inputs else []
    return {a.id for a in artifacts if a.type == standard_artifacts.Examples.TYPE_NAME}
