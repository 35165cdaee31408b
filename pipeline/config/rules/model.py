"""What has to hold between the model, the task, the features and the code of the user's."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.config.issues import Issue, near_match
from pipeline.config.settings import (
    PipelineConfig,
)
from pipeline.config.user_code.import_paths import check_import_path
from trainer_module.errors import enumerate_names
from trainer_module.settings.model import AUTO, ZOO, ModelSpec, undemanding_models

FOUND = ("text",)
"""Types that a column may be found to be, without a word of the config."""


def import_paths_lead_somewhere(config: PipelineConfig) -> Iterator[Issue]:
    """Code of the user's is found before anything runs, without running it."""
    for key, path in config.own_code.items():
        yield from check_import_path(key, path)
    kind = config.model.kind
    if not config.model.is_custom and kind not in (AUTO, *ZOO):
        yield Issue(
            "model.kind",
            f"found {kind!r}; {near_match(kind, ZOO)} "
            "A builder of yours is an import path, such as my_models.build_model",
        )


def model_has_the_feature_it_needs(config: PipelineConfig) -> Iterator[Issue]:
    """A model may need a feature of some type, such as an image to slide a convolution over."""
    kind = config.trainer_settings.model.kind
    needs = ZOO[kind].needs if kind in ZOO else ""
    if not needs or needs in FOUND or config.preprocessing is not None:
        return
    if not any(feature.type == needs for feature in config.features.values()):
        article = "an" if needs[0] in "aeiou" else "a"
        others = enumerate_names(undemanding_models(), "and")
        yield Issue(
            "model.kind", f"found {kind!r}, but no feature is {article} {needs}; {others} need none"
        )


def model_can_do_what_is_asked(config: PipelineConfig) -> Iterator[Issue]:
    """A model may know some tasks alone, and take no feature of some type, as trees no pixels."""
    kind = config.model.kind
    spec = ZOO.get(kind, ModelSpec(""))
    types = {feature.type for feature in config.features.values()}
    others = {n: s for n, s in ZOO.items() if not s.needs or s.needs in types}
    for name, feature in config.features.items():
        if feature.type in spec.refuses and config.preprocessing is None:
            able = enumerate_names((n for n, s in others.items() if not types & {*s.refuses}), "or")
            yield Issue(
                "model.kind",
                f"found {kind!r}, which takes no {feature.type}, and feature {name!r} is one; use "
                f"{able}",
            )
    plain = not config.target.has_options
    if spec.tasks and not (plain and config.target.kind in spec.tasks):
        able = enumerate_names((n for n, s in others.items() if not s.tasks), "or")
        yield Issue(
            "task",
            f"found {config.target.kind}{'' if plain else ' with options'}, but {kind} know "
            f"{enumerate_names(spec.tasks, 'and')} alone, without options; use the model {able}",
        )


MODEL_RULES = (
    import_paths_lead_somewhere,
    model_has_the_feature_it_needs,
    model_can_do_what_is_asked,
)
"""All rules of this module."""
