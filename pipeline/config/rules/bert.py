"""What has to hold between the model bert, its weights and the texts that it reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipeline.config.issues import Issue
from pipeline.config.settings import PipelineConfig
from trainer_module.errors import DataError
from trainer_module.families.supervised.models.bert.files import read_files
from trainer_module.features.text.pieces import read_pieces
from trainer_module.settings import TextFeature
from trainer_module.settings.model import SIZES, ZOO


def bert_reads_pieces_of_words(config: PipelineConfig) -> Iterator[Issue]:
    """What BERT reads has a first token, which no other way of cutting text gives."""
    if config.model.kind != "bert":
        return
    fine: dict[str, list[str | None]] = {
        "tokens": ["wordpiece"],
        "encoding": ["sequence", None],
        "hash_buckets": [None],
    }
    for name, feature in config.features.items():
        if feature.type != "text":
            continue
        for key in fine.keys() & feature.model_fields_set:
            if (found := getattr(feature, key)) not in fine[key]:
                yield Issue(
                    f"features.{name}.{key}",
                    f"found {found!r}; the model bert reads pieces of words in their order: leave "
                    "it out",
                )


def weights_are_those_of_a_bert(config: PipelineConfig) -> Iterator[Issue]:
    """Weights fit the files beside them, the sizes that are asked for, and the texts."""
    model = config.model
    if model.kind != "bert":
        return
    try:
        shape = read_files(model.weights).shape if model.weights else None
    except DataError as error:
        yield Issue("model.weights", str(error).rstrip("."))
        return
    if shape and model.size and not shape.is_of(model.size):
        yield Issue(
            "model.size",
            f"found {model.size.layers} layers of {model.size.hidden} with {model.size.heads} "
            f"heads, but {model.weights} are the weights of {shape.layers} of {shape.hidden} with "
            f"{shape.heads}; leave it out",
        )
    positions = shape.positions if shape else (model.size or SIZES["tiny"]).max_tokens
    for name, feature in config.features.items():
        if isinstance(feature, TextFeature) and feature.max_tokens > positions:
            yield Issue(
                f"features.{name}.max_tokens",
                f"found {feature.max_tokens}, but the model reads {positions} tokens at most",
            )


def weights_bring_their_vocabulary(config: PipelineConfig) -> Iterator[Issue]:
    """The pieces of another one would have the vectors of those of the weights."""
    weights = config.model.weights
    if config.model.kind != "bert" or weights is None:
        return
    for name, feature in config.features.items():
        folder = feature.vocabulary if isinstance(feature, TextFeature) else None
        if folder and Path(folder) != Path(weights):
            yield Issue(
                f"features.{name}.vocabulary",
                f"found {folder!r}, but model.weights, {weights}, have a vocabulary of their own; "
                "leave it out",
            )


def vocabularies_can_be_read(config: PipelineConfig) -> Iterator[Issue]:
    """A local folder with a vocabulary has to be there, and whole."""
    for name, feature in config.features.items():
        folder = feature.vocabulary if isinstance(feature, TextFeature) else None
        if folder is None or folder == config.model.weights:
            continue
        try:
            read_pieces(folder)
        except DataError as error:
            yield Issue(f"features.{name}.vocabulary", str(error).rstrip("."))


def layers_decay_where_they_have_numbers(config: PipelineConfig) -> Iterator[Issue]:
    """The rate falls from block to block of a BERT; a builder of the user's may have some."""
    kind, decay = config.trainer_settings.model.kind, config.train.optimizer.layer_decay
    if decay and kind in ZOO and kind != "bert":
        yield Issue(
            "train.optimizer.layer_decay",
            f"found {decay:g}, but the model {kind} has no blocks whose rates could differ; leave "
            "it out, or use the model bert",
        )


BERT_RULES = (
    bert_reads_pieces_of_words,
    weights_are_those_of_a_bert,
    weights_bring_their_vocabulary,
    vocabularies_can_be_read,
    layers_decay_where_they_have_numbers,
)
"""All rules of this module."""
