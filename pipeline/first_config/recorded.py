"""The config of a run, with everything that the run chose made explicit."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from pipeline.config.issues import MAY_HOLD_SECRETS
from pipeline.config.loading import check_rules
from pipeline.config.settings import PipelineConfig
from pipeline.first_config.proposal import Proposal
from pipeline.records.run_folders import StoredRun
from pipeline.records.summary import RunSummary
from pipeline.runs.provenance import NOT_SHOWN
from trainer_module.errors import DataError

_CHOSEN = "chosen by the run"


def recorded_config(run: StoredRun) -> Proposal:
    """Returns the config of a run, with the types of columns, the model, the length of training and
    the metrics that the run chose. A choice that the config cannot contain is left out.

    Raises:
      DataError: the summary cannot be read or has no config.
    """
    summary = run.read()
    recorded = summary.details.config if summary.details else {}
    if not recorded:
        raise DataError(
            f"{run.files.summary} has no config, as an older release wrote it or the run was"
            " killed: name another run by --from-run."
        )
    config, notes = copy.deepcopy(dict(recorded)), list[str]()
    for path in dict.fromkeys(map(_secret_section, _hidden(config))):
        _remove(config, path)
        notes.append(f"{'.'.join(path)} may be a secret and is left out: write it again")
    if summary.tuning.get("values"):
        config.pop("tune", None)
    if _parse(config) is None:
        raise DataError(
            f"{run.files.summary} has a config that is not valid without secrets, or that another"
            " release wrote: copy the file of the config instead."
        )
    if isinstance(config["task"], dict) and config["task"].keys() == {"kind"}:
        config["task"] = config["task"]["kind"]
    comments = {"features": "the types that the run chose"}
    for (path, value), comment in _choices(summary, config):
        if _get(config, path) is not None:
            continue
        changed = copy.deepcopy(config)
        _set(changed, path, value)
        if _parse(changed) is not None:
            config = changed
            comments[".".join(path)] = comment
    return Proposal(config, comments, f"run {run.id}", notes=tuple(notes))


def _parse(config: Mapping[str, Any]) -> PipelineConfig | None:
    """Returns the config, or None if a rule is broken; rules about files are left out."""
    try:
        loaded = PipelineConfig.model_validate(config)
    except ValidationError:
        return None
    return None if list(check_rules(loaded, checks_files=False)) else loaded


Path = tuple[str, ...]
"""The keys of a value, from the outermost section to the value."""


def _choices(
    summary: RunSummary, config: Mapping[str, Any]
) -> Iterator[tuple[tuple[Path, Any], str]]:
    """Yields the path and the value of each choice, with a comment."""
    for name, value in summary.tuning.get("values", {}).items():
        yield (tuple(name.split(".")), value), "the best value of the search"
    loaded = _parse(config)
    if loaded is None:
        return
    data = loaded.data.model_dump(mode="json")
    for key in ("label", "splits", "unlabelled"):
        yield (("data", key), data[key]), "the default"
    for name, column in summary.columns.items():
        if name not in loaded.no_features:
            yield (("features", name), column.settings), column.reason
    training = summary.training
    if "model" in training:
        yield (("model", "kind"), training["model"]), _CHOSEN
    for key in ("epochs", "precision", "loop", "strategy"):
        if key in training:
            yield (("train", key), training[key]), _CHOSEN
    if training.get("epochs") and training.get("steps"):
        steps = training["steps"] // training["epochs"]
        yield (("train", "steps_per_epoch"), steps), "an epoch may repeat the train split"
    # Without a network there are no steps, and the batch is the whole train split.
    if training.get("steps") and training.get("global_batch_size") and training.get("replicas"):
        size = training["global_batch_size"] // training["replicas"]
        yield (("train", "batch_size"), size), "the examples of a step on each device"
    if loaded.family.has_label:
        yield (("evaluate", "metrics"), list(loaded.target.default_metrics())), "the default"


def _hidden(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yields the paths of the values that the summary does not show."""
    if isinstance(value, Mapping):
        for key, child in value.items():
            yield from _hidden(child, (*path, str(key)))
    elif value == NOT_SHOWN or (isinstance(value, list) and NOT_SHOWN in value):
        yield path


def _secret_section(path: Path) -> Path:
    """Returns the part of a path of a secret that is left out, such as notify.webhook."""
    parts = (path[: end + 1] for end in range(len(path)))
    return next((part for part in parts if ".".join(part) in MAY_HOLD_SECRETS), path)


def _get(config: Mapping[str, Any], path: Path) -> Any:
    value: Any = config
    for key in path:
        if not isinstance(value, Mapping):
            return value  # A short form, such as `model: trees`.
        value = value.get(key)
    return value


def _set(config: dict[str, Any], path: Path, value: Any) -> None:
    *sections, last = path
    for section in sections:
        config = config.setdefault(section, {})
    config[last] = value


def _remove(config: dict[str, Any], path: Path) -> None:
    *sections, last = path
    parent = config
    for section in sections:
        parent = parent[section]
    del parent[last]
    if not parent and sections:
        _remove(config, path[:-1])
