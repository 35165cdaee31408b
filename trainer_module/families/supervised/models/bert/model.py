"""BERT with the head of a task, over the texts and what stands beside them."""

from __future__ import annotations

import tf_keras

from trainer_module.errors import TrainingError, enumerate_names
from trainer_module.families.supervised.models import layers
from trainer_module.families.supervised.models.bert.encoder import encode
from trainer_module.families.supervised.models.bert.files import BertFiles, read_files, read_weights
from trainer_module.families.supervised.models.bert.shape import BertShape
from trainer_module.families.supervised.models.bert.weights import load_weights
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem
from trainer_module.settings import ModelSettings
from trainer_module.settings.model import SIZES, undemanding_models


def build_model(problem: Problem, settings: ModelSettings) -> tf_keras.Model:
    """The uncompiled model; features that are no texts are joined to what the first token becomes.

    Raises:
      TrainingError: if there is no text, the texts are too long, or the weights cannot be used.
    """
    texts = problem.of_kind("text")
    if not texts:
        found = ", ".join(f"{f.name} ({f.kind})" for f in problem.features)
        raise TrainingError(
            f"model 'bert' needs a text feature, but the data has {found or 'no feature'}; give a "
            f"column {{type: text}}, or use {enumerate_names(undemanding_models(), 'or')}."
        )
    files = read_files(settings.weights) if settings.weights else None
    shape = _shape(texts, settings, files)
    inputs = problem.make_inputs()
    _, pooled = encode([inputs[text.name] for text in texts], shape, settings.dropout)
    others = [feature for feature in problem.features if feature.kind != "text"]
    encoded = layers.encode(others, inputs, settings.embedding_size)
    hidden = layers.hidden_layers(layers.concatenate([pooled, *encoded]), settings)
    model = tf_keras.Model(inputs, problem.make_output_layer()(hidden), name="bert")
    if files:
        load_weights(model, read_weights(files))
    return model


def _shape(
    texts: tuple[TransformedFeature, ...], settings: ModelSettings, files: BertFiles | None
) -> BertShape:
    vocabulary = max(text.vocabulary_size for text in texts)
    shape = files.shape if files else BertShape.of_sizes(settings.size or SIZES["tiny"], vocabulary)
    if vocabulary != shape.vocabulary:
        raise TrainingError(
            f"{settings.weights}: the weights are of {shape.vocabulary:,} pieces, but "
            f"column {texts[0].name!r} was cut into those of a vocabulary of {vocabulary:,}; leave "
            "out what features say of its vocabulary."
        )
    # Only the first text brings its first token.
    tokens = sum(text.shape[0] for text in texts) - len(texts) + 1
    if tokens > shape.positions:
        columns = enumerate_names((repr(text.name) for text in texts), "and")
        raise TrainingError(
            f"features: {columns} are up to {tokens} tokens long, but the model bert reads "
            f"{shape.positions} at most; make max_tokens smaller."
        )
    return shape
