"""Fetches published weights into the cache of Keras or Hugging Face before a run trains.

A child process fetches the weights with Keras or the client of the Hugging Face Hub. The process
of the run imports neither, as it later forks other processes, and can end the child process.
"""

from __future__ import annotations

import hashlib
import os
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
from pipeline.credentials import mask_credentials
from trainer_module.errors import ConfigError, enumerate_names, shorten
from trainer_module.extras import install_command
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

STALL_SECONDS = 30
"""The time limit for a pause in a download, in seconds."""
LIMIT_SECONDS = 3600
"""The time limit of the child process, in seconds."""
FAILED = "fetching failed: "
"""The prefix of the child process's last line, which has the reason of a failure."""
REQUIRED_FILES = (CONFIG, VOCABULARY, WEIGHTS)
"""The required files of a BERT model on the hub; TOKENIZER is optional."""

ShowLine = Callable[[str], None]


def addresses_to_fetch(config: PipelineConfig) -> list[str]:
    """Returns the addresses of published files that a run would have to fetch."""
    files = [file for _, file in _keras_files(config)]
    absent = [file.address for file in files if not (keras_cache() / file.name).exists()]
    name = _bert_name(config.model)
    return absent if name is None or _has_all(name) else [*absent, _hub_address(name)]


def fetch_and_check_weights(config: PipelineConfig, show_line: ShowLine) -> None:
    """Fetches the published weights that a config names, and checks the config against them.

    Args:
      config: a config that passed all checks for which no published files are needed.
      show_line: a function that shows a line on the console.

    Raises:
      ConfigError: the weights cannot be fetched, are damaged, or do not fit the config.
    """
    if fetch_weights(config, show_line):
        rules = (weights_are_a_file_of_weights, bert_weights_are_valid)
        problems = [str(problem) for problem in config.find_issues(rules)]
        if problems:
            raise ConfigError("; ".join(problems))


def fetch_weights(config: PipelineConfig, show_line: ShowLine) -> bool:
    """Fetches published weights that the cache lacks; checks the hashes of cached weights.

    The names of ImageNet's classes are fetched too if the label has these classes.

    Args:
      config: a config whose `model.weights` may be the name of published weights.
      show_line: a function that shows a line on the console.

    Returns:
      Whether a file was fetched.

    Raises:
      ConfigError: the weights cannot be fetched, or cached weights are damaged.
    """
    fetched = [_fetch_from_keras(key, file, show_line) for key, file in _keras_files(config)]
    name = _bert_name(config.model)
    if name is not None:
        fetched.append(_fetch_from_hub(name, show_line))
    return any(fetched)


def _keras_files(config: PipelineConfig) -> Iterator[tuple[str, PublishedFile]]:
    """Yields the files of Keras that a config needs, each after the config key that needs it."""
    model = config.model
    if model.kind in PUBLISHED and model.weights == IMAGENET:
        yield "model.weights", imagenet_file(model.kind, model.has_published_head)
    if getattr(config.target, "classes", None) == IMAGENET:
        yield "task.classes", CLASS_INDEX


def _fetch_from_keras(key: str, file: PublishedFile, show_line: ShowLine) -> bool:
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
                    f"({reason}); download the file where there is a network, and copy it to "
                    f"{folder}."
                )
    except OSError as error:
        raise ConfigError(
            f"{key}: {file.name} cannot be stored in {folder} ({error.strerror or error}); "
            "set the environment variable KERAS_HOME to another folder."
        ) from None
    return True


def _check_md5(key: str, path: Path, file: PublishedFile) -> None:
    with path.open("rb") as opened:
        actual = hashlib.file_digest(opened, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if actual != file.md5:
        raise ConfigError(
            f"{key}: {path} has the MD5 {actual}, but the file that Keras publishes has "
            f"{file.md5}. The local file is truncated or another file; delete it, and the next run "
            f"fetches it from {file.address}."
        )


def _fetch_from_hub(name: str, show_line: ShowLine) -> bool:
    is_cached = _has_all(name)
    if not is_cached:
        if not has_hub_client():
            raise ConfigError(
                f"model.weights: there is no local folder {name}, and the package "
                f"{HUB_PACKAGE}, which fetches models from Hugging Face, is not installed; "
                f"run `{install_command('hub')}`, or {_by_hand(name)}."
            )
        show_line(f"fetching {name} from {_hub_address(name)}")
        if reason := _fetch(["hub", name]):
            raise ConfigError(
                f"model.weights: there is no local folder {name}, and the model could not be "
                f"fetched from {_hub_address(name)} ({reason}); {_by_hand(name)}."
            )
    folder = hub_folder(name)
    for path, actual, expected in wrong_hashes(folder) if folder else ():
        raise ConfigError(
            f"model.weights: {path} has the hash {actual}, but the file on the hub has {expected}. "
            f"The local file is damaged; delete {path.parents[2]}, and the next run fetches the "
            "model again."
        )
    return not is_cached


def _bert_name(model: ModelSettings) -> str | None:
    return hub_name(model.weights) if model.kind == "bert" and model.weights else None


def _has_all(name: str) -> bool:
    folder = hub_folder(name)
    return folder is not None and all((folder / file).is_file() for file in REQUIRED_FILES)


def _hub_address(name: str) -> str:
    address = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    return f"{mask_credentials(address)}/{name}"


def _by_hand(name: str) -> str:
    """Returns the instruction to download a model without Scopeline."""
    return (
        f"download {enumerate_names(REQUIRED_FILES, 'and')}, and {TOKENIZER} if it exists, from "
        f"{_hub_address(name)} where there is a network, copy them to a folder, and write its path "
        "into model.weights"
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
        return f"the download took more than {LIMIT_SECONDS:,} s"
    if done.returncode == 0:
        return ""
    _, mark, reason = done.stdout.rpartition(FAILED)
    return (
        shorten(mask_credentials(reason))
        if mark
        else f"the download process ended with exit code {done.returncode}"
    )


def _from_keras(name: str, address: str, md5: str, folder: str) -> None:
    """Fetches a file with Keras, which checks the hash; only a complete file is moved to the
    cache.
    """
    import tf_keras

    socket.setdefaulttimeout(STALL_SECONDS)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-") as scratch:
        path = tf_keras.utils.get_file(
            name, address, cache_dir=scratch, cache_subdir="models", file_hash=md5
        )
        Path(path).replace(Path(folder) / name)


def _from_hub(name: str) -> None:
    """Fetches a model with the hub's client, which resumes an interrupted download."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    # The optional file is fetched first: `_has_all` does not check it, so that an interruption
    # after the required files would go unnoticed.
    try:
        hf_hub_download(name, TOKENIZER, etag_timeout=STALL_SECONDS)
    except LocalEntryNotFoundError:
        raise
    except EntryNotFoundError:
        pass  # The model has no such file.
    for file in REQUIRED_FILES:
        hf_hub_download(name, file, etag_timeout=STALL_SECONDS)


if __name__ == "__main__":
    source, *values = sys.argv[1:]
    try:
        (_from_keras if source == "keras" else _from_hub)(*values)
    except Exception as error:
        # Libraries and networks raise many types of errors. The parent reads the last line.
        sys.stdout.write(f"\n{FAILED}{error}")
        sys.exit(1)
