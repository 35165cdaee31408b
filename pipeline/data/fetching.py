"""Fetches published weights into the cache of Keras or Hugging Face before a run trains.

A child process fetches them with Keras or the hub's client. The run's own process, from which
others are forked later, imports neither, and can end the child.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from filelock import FileLock

from components.processes.local.process import module_path
from pipeline.config.sections.model import (
    bert_weights_are_valid,
    weights_are_a_file_of_weights,
)
from pipeline.config.settings import PipelineConfig
from trainer_module.errors import ConfigError, enumerate_names, shorten
from trainer_module.families.supervised.models.bert_files import CONFIG, WEIGHTS
from trainer_module.features.text.pieces import TOKENIZER, VOCABULARY
from trainer_module.published import (
    CLASS_INDEX,
    HUB_PACKAGE,
    IMAGENET,
    PUBLISHED,
    PublishedFile,
    has_hub_client,
    hub_folder,
    hub_name,
    imagenet_file,
    keras_cache,
    wrong_hashes,
)
from trainer_module.settings import ModelSettings

EXTRA = "scopeline[hub]"
STALL_SECONDS = 30
"""The time after which a server that sends nothing is given up."""
LIMIT_SECONDS = 3600
"""The time limit for fetching one file."""
FAILED = "fetching failed: "
"""The beginning of the line with the reason for a failure."""
NEEDED = (CONFIG, VOCABULARY, WEIGHTS)
"""The required files of a BERT on the hub; TOKENIZER is optional."""

Say = Callable[[str], None]


def addresses_to_fetch(config: PipelineConfig) -> list[str]:
    """Returns the addresses from which a run would fetch missing files."""
    files = [file for _, file in _keras_files(config)]
    absent = [file.address for file in files if not (keras_cache() / file.name).exists()]
    name = _bert_name(config.model)
    return absent if name is None or _has_all(name) else [*absent, _hub_address(name)]


def fetch_and_check_weights(config: PipelineConfig, show_line: Say) -> None:
    """Fetches the published weights that a config names, and checks the config against them.

    Args:
      config: a config that is checked except for weights that were missing.
      show_line: shows a line on the console.

    Raises:
      ConfigError: weights cannot be fetched, are damaged, or do not fit the rest of the config.
    """
    if fetch_weights(config, show_line):
        rules = (weights_are_a_file_of_weights, bert_weights_are_valid)
        problems = [str(problem) for problem in config.find_issues(rules)]
        if problems:
            raise ConfigError("; ".join(problems))


def fetch_weights(config: PipelineConfig, show_line: Say) -> bool:
    """Fetches published weights that are missing in their cache; checks those that are there.

    The names of ImageNet's classes are fetched too if the label has these classes.

    Args:
      config: a config whose `model.weights` may be the name of published weights.
      show_line: shows a line on the console.

    Returns:
      Whether anything was fetched.

    Raises:
      ConfigError: the weights cannot be fetched, or those in the cache are damaged.
    """
    fetched = [_fetch_from_keras(key, file, show_line) for key, file in _keras_files(config)]
    name = _bert_name(config.model)
    if name is not None:
        fetched.append(_fetch_from_hub(name, show_line))
    return any(fetched)


def _keras_files(config: PipelineConfig) -> Iterator[tuple[str, PublishedFile]]:
    """Yields Keras's files that a config names, each with its key of the config."""
    model = config.model
    if model.kind in PUBLISHED and model.weights == IMAGENET:
        yield "model.weights", imagenet_file(model.kind, model.has_published_head)
    if getattr(config.target, "classes", None) == IMAGENET:
        yield "task.classes", CLASS_INDEX


def _fetch_from_keras(key: str, file: PublishedFile, show_line: Say) -> bool:
    folder = keras_cache()
    path = folder / file.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{file.name}.lock"):
            if path.exists():
                _check_md5(key, path, file)
                return False
            show_line(f"fetching {file.name} from {file.address} into {folder}")
            arguments = ["keras", file.name, file.address, file.md5, str(folder)]
            if reason := _fetch(arguments):
                raise ConfigError(
                    f"{key}: {file.name} could not be fetched from {file.address} "
                    f"({reason}); fetch it where there is a network, and put it into {folder}."
                )
    except OSError as error:
        raise ConfigError(
            f"{key}: {file.name} cannot be kept in {folder} ({error.strerror or error}); "
            "name another folder by the variable KERAS_HOME."
        ) from None
    return True


def _check_md5(key: str, path: Path, file: PublishedFile) -> None:
    with path.open("rb") as opened:
        found = hashlib.file_digest(opened, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if found != file.md5:
        raise ConfigError(
            f"{key}: {path} has the MD5 {found}, but the file that Keras publishes has "
            f"{file.md5}: it is cut off, or another file; delete it, and the next run fetches it "
            f"from {file.address}."
        )


def _fetch_from_hub(name: str, show_line: Say) -> bool:
    is_there = _has_all(name)
    if not is_there:
        if not has_hub_client():
            raise ConfigError(
                f"model.weights: there is no folder {name} here, and the package "
                f"{HUB_PACKAGE}, which fetches models from Hugging Face, is not installed; "
                f"pip install '{EXTRA}', or {_by_hand(name)}."
            )
        show_line(f"fetching {name} from {_hub_address(name)}")
        if reason := _fetch(["hub", name]):
            raise ConfigError(
                f"model.weights: there is no folder {name} here, and it could not be fetched from "
                f"{_hub_address(name)} ({reason}); {_by_hand(name)}."
            )
    folder = hub_folder(name)
    for path, found, right in wrong_hashes(folder) if folder else ():
        raise ConfigError(
            f"model.weights: {path} has the hash {found}, but the file on the hub has {right}: it "
            f"is damaged; delete {path.parents[2]}, and the next run fetches it again."
        )
    return not is_there


def _bert_name(model: ModelSettings) -> str | None:
    return hub_name(model.weights) if model.kind == "bert" and model.weights else None


def _has_all(name: str) -> bool:
    folder = hub_folder(name)
    return folder is not None and all((folder / file).is_file() for file in NEEDED)


def _hub_address(name: str) -> str:
    address = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    return f"{_without_passwords(address)}/{name}"


def _without_passwords(text: str) -> str:
    """Returns a text without the users and passwords in its URLs."""
    return re.sub(r"://[^/\s@]*@", "://", text)


def _by_hand(name: str) -> str:
    return (
        f"fetch {enumerate_names(NEEDED, 'and')}, and {TOKENIZER} if it is there, from "
        f"{_hub_address(name)} where there is a network, put them into a folder, and give its path"
    )


def _fetch(arguments: Sequence[str]) -> str:
    """Runs the child process that fetches; returns the reason for a failure, empty on success."""
    command = [sys.executable, "-P", "-m", __name__, *arguments]
    environment = {**os.environ, **module_path(), "TF_CPP_MIN_LOG_LEVEL": "3"}
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT_SECONDS,
            text=True,
        )
    except subprocess.TimeoutExpired:
        return f"not done within {LIMIT_SECONDS:,} s"
    if done.returncode == 0:
        return ""
    _, mark, reason = done.stdout.rpartition(FAILED)
    return (
        shorten(_without_passwords(reason))
        if mark
        else f"the download process ended with {done.returncode}"
    )


def _from_keras(name: str, address: str, md5: str, folder: str) -> None:
    """Fetches with Keras, which checks the hash; the file appears in the cache when it is
    complete.
    """
    import tf_keras

    socket.setdefaulttimeout(STALL_SECONDS)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-") as scratch:
        path = tf_keras.utils.get_file(
            name, address, cache_dir=scratch, cache_subdir="models", file_hash=md5
        )
        Path(path).replace(Path(folder) / name)


def _from_hub(name: str) -> None:
    """Fetches with the hub's client, which resumes an interrupted download."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    # First, as `_has_all` does not check it: an interrupted download would go unnoticed.
    try:
        hf_hub_download(name, TOKENIZER, etag_timeout=STALL_SECONDS)
    except LocalEntryNotFoundError:
        raise
    except EntryNotFoundError:
        pass  # The model has none.
    for file in NEEDED:
        hf_hub_download(name, file, etag_timeout=STALL_SECONDS)


if __name__ == "__main__":
    source, *values = sys.argv[1:]
    try:
        (_from_keras if source == "keras" else _from_hub)(*values)
    except Exception as error:
        # Any error of libraries and networks; the parent process reads the last line.
        sys.stdout.write(f"\n{FAILED}{error}")
        sys.exit(1)
