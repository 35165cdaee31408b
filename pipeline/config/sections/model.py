"""The rules of `model`: its keys have to fit each other, the task and the features."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipeline.config.issues import Issue, near_match, near_match_and, rules_of
from pipeline.config.user_code import import_paths_exist
from trainer_module.errors import DataError, TrainingError, counted, enumerate_names
from trainer_module.families.supervised.models.bert_files import read_files
from trainer_module.families.supervised.models.weight_formats import check_format
from trainer_module.features.text.pieces import read_pieces
from trainer_module.published import IMAGENET, hub_name, local_folder, local_weights
from trainer_module.settings import (
    AUTO,
    Feature,
    ImageFeature,
    ModelSettings,
    TextFeature,
    TrainerSettings,
    TrainSettings,
)
from trainer_module.settings.model import (
    EMBEDDING,
    ENSEMBLE,
    LEARNERS,
    NETWORK_MEMBER,
    NETWORKS,
    SIZES,
    ZOO,
    ModelSpec,
    too_small_for,
    unrestricted_models,
)
from trainer_module.settings.tasks import BaseTask
from trainer_module.settings.tune import AnyTune
from trainer_module.strategies.base import Processes

INFERRED_COLUMN_TYPES = ("text",)
"""Types that models need and that may be inferred for a column without an entry in `features`."""


def model_kind_is_known(model: ModelSettings) -> Iterator[Issue]:
    """Checks that a `kind` that is no import path is the name of a built-in model."""
    kind = model.kind
    if kind in LEARNERS:
        tasks = enumerate_names(LEARNERS[kind].tasks, "or")
        yield Issue("model.kind", f"found {kind!r}, which is only for `task: {tasks}`")
    elif not model.is_custom and kind not in (AUTO, *ZOO):
        yield Issue(
            "model.kind",
            f"found {kind!r}; "
            + near_match_and(
                kind,
                ZOO,
                "To use a builder of your own, write its import path, such as "
                "my_models.build_model",
            ),
        )


def model_has_the_feature_it_needs(
    features: dict[str, Feature], preprocessing: str | None, trainer_settings: TrainerSettings
) -> Iterator[Issue]:
    """Checks that there is a feature of the type that the model needs, such as an image."""
    kind = trainer_settings.model.kind
    needs = ZOO[kind].needs if kind in ZOO else ""
    if not needs or needs in INFERRED_COLUMN_TYPES or preprocessing is not None:
        return
    if not any(feature.type == needs for feature in features.values()):
        article = "an" if needs[0] in "aeiou" else "a"
        others = enumerate_names(unrestricted_models(), "or")
        yield Issue(
            "model.kind",
            f"found {kind!r}, but no feature is {article} {needs}; add {article} {needs} feature, "
            f"or use {others}",
        )


def model_supports_task_and_features(
    label_task: BaseTask,
    features: dict[str, Feature],
    preprocessing: str | None,
    model: ModelSettings,
) -> Iterator[Issue]:
    """Checks that the model supports the task and the types of the features."""
    kind = model.kind
    spec = ZOO.get(kind, ModelSpec(""))
    types = {feature.type for feature in features.values()}
    others = {n: s for n, s in ZOO.items() if not s.needs or s.needs in types}
    for name, feature in features.items():
        if feature.type in spec.refuses and preprocessing is None:
            suitable = enumerate_names(
                (n for n, s in others.items() if not types & {*s.refuses}), "or"
            )
            yield Issue(
                "model.kind",
                f"found {kind!r}, which cannot read the {feature.type} feature {name!r}; use "
                f"{suitable}",
            )
    has_options = label_task.has_options
    if spec.tasks and (has_options or label_task.kind not in spec.tasks):
        suitable = enumerate_names((n for n, s in others.items() if not s.tasks), "or")
        yield Issue(
            "task",
            f"found {label_task.kind}{' with options' if has_options else ''}, but `model: {kind}` "
            f"supports only {enumerate_names(spec.tasks, 'and')} without options; use the "
            f"model {suitable}",
        )


def layers_are_named_once(model: ModelSettings) -> Iterator[Issue]:
    """Checks that only one of `layers` and `filters` sets the convolutions."""
    if model.layers is not None and "filters" in model.model_fields_set:
        yield Issue(
            "model.filters",
            f"found {model.filters}, but model.layers sets the filters too; remove one of the two "
            "keys",
        )


def layers_keep_a_positive_size(
    features: dict[str, Feature], preprocessing: str | None, model: ModelSettings
) -> Iterator[Issue]:
    """Checks that convolutions and poolings leave at least one pixel of each picture."""
    if model.layers is None or preprocessing is not None:
        return
    for name, feature in features.items():
        size = feature.size if isinstance(feature, ImageFeature) else None
        if size is not None and (reason := too_small_for(model.layers, *size)):
            yield Issue("model.layers", f"features.{name}: {reason}")


MODEL_RULES = (import_paths_exist, *rules_of(__name__))


KEYS = ("size", "weights", "transfer", "sync_batch_norm")
"""Keys of `model` that only some built-in models read, and no builder of the user's."""


def transferred_network_exists(
    model: ModelSettings, trainer_settings: TrainerSettings
) -> Iterator[Issue]:
    """Checks that the model reads all keys of `model` that the config sets."""
    model = trainer_settings.model
    spec, specs = ZOO.get(model.kind), {**ZOO, **LEARNERS}
    set_keys = {key for key in KEYS if getattr(model, key)} | model.model_fields_set & {"outputs"}
    if spec:
        set_keys |= model.model_fields_set & {key for s in specs.values() for key in s.reads}
    for key in (key for key in type(model).model_fields if key in set_keys):
        if not (spec and key in spec.reads) and getattr(model, key) is not None:
            suitable = enumerate_names((n for n, s in specs.items() if key in s.reads), "or")
            yield Issue(
                f"model.{key}",
                f"`model: {model.kind}` does not read this key; remove it, or use {suitable}",
            )


def averaged_forests_have_no_depth(model: ModelSettings) -> Iterator[Issue]:
    """Checks that keys of gradient-boosted trees are not set for other forests."""
    for key in ("max_depth", "shrinkage"):
        if model.kind == "trees" and model.forest != "boosted" and key in model.model_fields_set:
            yield Issue(
                f"model.{key}",
                f"`forest: {model.forest}` does not read this key, as its trees grow to the end "
                "and are averaged; remove it, or use `forest: boosted`",
            )


def forests_with_settings_are_members(
    model: ModelSettings, trainer_settings: TrainerSettings
) -> Iterator[Issue]:
    """Checks that an ensemble contains the forests whose keys the config sets."""
    if trainer_settings.model.kind != ENSEMBLE:
        return
    members = model.ensemble_members
    for forest in sorted(model.model_fields_set & {"random", "extra"} - {*members}):
        yield Issue(
            f"model.{forest}",
            "found keys of a forest that is not a member of the ensemble; write "
            f"`members: [{', '.join([*members, forest])}]`, or remove the keys",
        )


def members_are_of_an_ensemble(
    model: ModelSettings, trainer_settings: TrainerSettings
) -> Iterator[Issue]:
    """Checks that `members` is a list only for an ensemble, and for `tabular` a number."""
    kind = trainer_settings.model.kind
    if kind == NETWORK_MEMBER and not isinstance(model.members, int):
        yield Issue(
            "model.members",
            f"found the members of an ensemble, but the model is {kind}, whose members are a number"
            " of networks; add kind: ensemble, or remove this key",
        )


def pictures_are_large_enough(
    features: dict[str, Feature], preprocessing: str | None, model: ModelSettings
) -> Iterator[Issue]:
    """Checks that pictures have at least the size that a built-in network needs."""
    kind = model.kind
    if kind not in NETWORKS or preprocessing is not None:
        return
    min_side = NETWORKS[kind].least
    for name, feature in features.items():
        size = feature.size if isinstance(feature, ImageFeature) else None
        if size is not None and min(size) < min_side:
            yield Issue(
                f"features.{name}",
                f"found {size[0]}x{size[1]} pixels, but {kind} needs at least "
                f"{min_side}x{min_side}; write height: {min_side} and width: {min_side}, and "
                "pictures are resized",
            )


def fine_tuning_has_epochs(model: ModelSettings, train: TrainSettings) -> Iterator[Issue]:
    """Checks that a network is unfrozen before the last epoch."""
    transfer, epochs = model.transfer, train.epochs
    after = transfer.unfreeze_after if transfer else None
    if after and epochs != AUTO and after >= epochs:
        yield Issue(
            "model.transfer.unfreeze_after",
            f"found {after}, but train.epochs is {epochs}, so nothing would be fine-tuned; write "
            f"less than {epochs}, or increase train.epochs",
        )


def fine_tuning_keys_need_unfreeze_after(model: ModelSettings) -> Iterator[Issue]:
    """Checks that settings for fine-tuning are set only together with `unfreeze_after`."""
    transfer = model.transfer
    if transfer is None or transfer.unfreeze_after:
        return
    for key in ("unfreeze_layers", "learning_rate"):
        if key in transfer.model_fields_set:
            yield Issue(
                f"model.transfer.{key}",
                f"found {getattr(transfer, key)}, but the network remains frozen; add "
                "unfreeze_after: 10, or remove this key",
            )


def head_is_given_once(model: ModelSettings) -> Iterator[Issue]:
    """Checks that only one of `hidden_units` and `transfer.head` sets the dense layers."""
    transfer = model.transfer
    if transfer and isinstance(transfer.head, list) and "hidden_units" in model.model_fields_set:
        yield Issue(
            "model.hidden_units",
            f"found {model.hidden_units}, but model.transfer.head sets the layers too; remove one "
            "of the two keys",
        )


def published_heads_stay_as_they_are(
    label_task: BaseTask,
    model: ModelSettings,
    train: TrainSettings,
    trainer_settings: TrainerSettings,
    tune: AnyTune | None,
) -> Iterator[Issue]:
    """Checks that a network with its published head, for ImageNet's classes, is not trained."""
    transfer = model.transfer
    if transfer is None or not model.has_published_head:
        return
    if not model.weights:
        yield Issue(
            "model.weights", f"this key is missing; a published head needs weights: {IMAGENET}"
        )
    if getattr(label_task, "classes", None) != IMAGENET:
        yield Issue(
            "task",
            f"found {label_task.kind}, but a published head predicts ImageNet's classes; write "
            "task: {kind: multiclass, classes: imagenet}",
        )
    unused_keys = {
        "model.hidden_units": "hidden_units" in model.model_fields_set,
        "model.outputs": EMBEDDING in model.outputs,
        "model.transfer.freeze": transfer.freeze is not None,
        "model.transfer.unfreeze_after": transfer.unfreeze_after is not None,
        "train.checkpoints": train.checkpoints is not None,
        "train.strategy": train.strategy.processes is Processes.SERVERS,
        "tune": tune is not None,
        "evaluate.folds": bool(trainer_settings.evaluate.folds),
        "optimize.prune": trainer_settings.optimize.prune is not None,
        "optimize.quantize": trainer_settings.optimize.quantize is not None,
    }
    for key in (key for key, is_given in unused_keys.items() if is_given):
        yield Issue(key, "a network with a published head is not trained; remove this key")


def weights_are_a_file_of_weights(model: ModelSettings) -> Iterator[Issue]:
    """Checks that local weights exist, in a file format without code."""
    path, kind = model.weights, model.kind
    if path is None or kind not in NETWORKS or "://" in path:
        return
    if path == IMAGENET:
        path = local_weights(kind, path, model.has_published_head)
        if not Path(path).exists():
            return  # The run fetches it.
    if not Path(path).exists():
        folder = Path(path).parent
        names = [str(p) for p in folder.iterdir()] if folder.is_dir() else []
        hint = f"; {near_match(path, names)}" if 0 < len(names) <= 20 else ""
        yield Issue(
            "model.weights",
            f"found {path!r}; there is no such file or folder{hint}; for the weights that Keras "
            f"publishes, write {IMAGENET}",
        )
    elif Path(path).is_file():
        try:
            check_format(Path(path), path)
        except TrainingError as error:
            yield Issue("model.weights", str(error).removeprefix("model.weights: ").rstrip("."))


TRANSFER_RULES = rules_of(__name__, *MODEL_RULES)


def bert_reads_subwords(features: dict[str, Feature], model: ModelSettings) -> Iterator[Issue]:
    """Checks that the text features of BERT are sequences of wordpieces."""
    if model.kind != "bert":
        return
    allowed: dict[str, list[str | None]] = {
        "tokens": ["wordpiece"],
        "encoding": ["sequence", None],
        "hash_buckets": [None],
    }
    for name, feature in features.items():
        if feature.type != "text":
            continue
        for key in allowed.keys() & feature.model_fields_set:
            if (value := getattr(feature, key)) not in allowed[key]:
                yield Issue(
                    f"features.{name}.{key}",
                    f"found {value!r}, but the model bert reads a sequence of subwords; remove "
                    "this key",
                )


def bert_weights_are_valid(features: dict[str, Feature], model: ModelSettings) -> Iterator[Issue]:
    """Checks that the files of BERT weights are complete and fit the size and the features."""
    if model.kind != "bert":
        return
    weights = model.weights
    if weights == IMAGENET:
        yield Issue(
            "model.weights",
            f"found {IMAGENET}, the weights of image networks; expected a name such as "
            "bert-base-uncased, or a folder",
        )
        return
    if weights and hub_name(weights) and local_folder(weights) == weights:
        weights = None  # The run fetches them.
    try:
        shape = read_files(weights).shape if weights else None
    except DataError as error:
        yield Issue("model.weights", str(error).rstrip("."))
        return
    if shape and model.size and not shape.matches(model.size):
        yield Issue(
            "model.size",
            f"found {counted(model.size.layers, 'layer')} of {model.size.hidden} with "
            f"{counted(model.size.heads, 'head')}, but {model.weights} has "
            f"{counted(shape.layers, 'layer')} of {shape.hidden} with "
            f"{counted(shape.heads, 'head')}; remove this key",
        )
    positions = shape.positions if shape else (model.size or SIZES["tiny"]).max_tokens
    for name, feature in features.items():
        if isinstance(feature, TextFeature) and feature.max_tokens > positions:
            yield Issue(
                f"features.{name}.max_tokens",
                f"found {feature.max_tokens}, but the model reads {positions} tokens at most",
            )


def weights_bring_their_vocabulary(
    features: dict[str, Feature], model: ModelSettings
) -> Iterator[Issue]:
    """Checks that no text feature sets another vocabulary than that of the BERT weights."""
    weights = model.weights
    if model.kind != "bert" or weights is None:
        return
    for name, feature in features.items():
        folder = feature.vocabulary if isinstance(feature, TextFeature) else None
        if folder and Path(folder) != Path(weights):
            yield Issue(
                f"features.{name}.vocabulary",
                f"found {folder!r}, but the weights {weights} contain a vocabulary; remove this "
                "key",
            )


def vocabularies_can_be_read(features: dict[str, Feature], model: ModelSettings) -> Iterator[Issue]:
    """Checks that a local folder with a vocabulary exists and is complete."""
    for name, feature in features.items():
        folder = feature.vocabulary if isinstance(feature, TextFeature) else None
        if folder is None or folder == model.weights:
            continue
        try:
            read_pieces(folder)
        except DataError as error:
            yield Issue(f"features.{name}.vocabulary", str(error).rstrip("."))


def layer_decay_needs_numbered_layers(
    train: TrainSettings, trainer_settings: TrainerSettings
) -> Iterator[Issue]:
    """Checks that `layer_decay` is set only for BERT, or for a builder of the user's."""
    kind, decay = trainer_settings.model.kind, train.optimizer.layer_decay
    if decay and kind in ZOO and kind != "bert":
        yield Issue(
            "train.optimizer.layer_decay",
            f"found {decay:g}, but the model {kind} has no blocks with separate learning rates; "
            "remove this key, or use the model bert",
        )


BERT_RULES = rules_of(__name__, *MODEL_RULES, *TRANSFER_RULES)
