"""Which model a candidate has to beat: a strategy for TFX's Resolver."""

from __future__ import annotations

import ml_metadata as mlmd
from tfx.components.evaluator import constants
from tfx.dsl.components.common import resolver
from tfx.types import artifact
from tfx.types.standard_component_specs import MODEL_BLESSING_KEY, MODEL_KEY

CANDIDATE_KEY = "candidate"


class LatestOtherBlessedModelStrategy(resolver.ResolverStrategy):
    """The latest blessed model that is not the candidate itself.

    TFX's LatestBlessedModelStrategy resolves, on a rerun with nothing changed, to the candidate:
    the Evaluator would then compare a model with itself, and never be cached.
    """

    def resolve_artifacts(
        self, store: mlmd.MetadataStore, input_dict: dict[str, list[artifact.Artifact]]
    ) -> dict[str, list[artifact.Artifact]]:
        """Resolves the model and its blessing; both lists are empty while there is none.

        Args:
          store: the metadata store; all that is needed is in the inputs already.
          input_dict: all models and blessings of the pipeline, and this run's candidate.
        """
        del store
        candidates = {model.id for model in input_dict[CANDIDATE_KEY]}
        blessings = {
            blessing.get_int_custom_property(
                constants.ARTIFACT_PROPERTY_CURRENT_MODEL_ID_KEY
            ): blessing
            for blessing in input_dict[MODEL_BLESSING_KEY]
            if blessing.get_int_custom_property(constants.ARTIFACT_PROPERTY_BLESSED_KEY)
            == constants.BLESSED_VALUE
        }
        blessed = [
            model
            for model in input_dict[MODEL_KEY]
            if model.id in blessings and model.id not in candidates
        ]
        latest = sorted(blessed, key=lambda model: model.id)[-1:]
        return {
            CANDIDATE_KEY: input_dict[CANDIDATE_KEY],
            MODEL_KEY: latest,
            MODEL_BLESSING_KEY: [blessings[model.id] for model in latest],
        }
