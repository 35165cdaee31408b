"""Published weights: fetched once from a server of this machine, kept, checked, or refused."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from pipeline.config.loading import load_config
from pipeline.config.settings import PipelineConfig
from pipeline.data.fetching import (
    REQUIRED_FILES,
    addresses_to_fetch,
    fetch_and_check_weights,
    fetch_weights,
)
from pipeline.graph.cache_keys import Recipe
from pipeline.own_modules import ROOT
from trainer_module import published
from trainer_module.errors import ConfigError
from trainer_module.published import (
    CLASS_INDEX,
    PUBLISHED,
    PublishedFile,
    keras_cache,
    local_folder,
)
from trainer_module.settings import TextFeature
from trainer_module.settings.model import NETWORKS

pytestmark = pytest.mark.slow

BERT = ROOT / "tests" / "trainer_module" / "models" / "data" / "bert"
COMMIT = "c0ffee" * 6 + "c0ff"
KIND = "mobilenet_v3_small"


def config_of(task: object = "multiclass", **model: object) -> PipelineConfig:
    data = {"format": "images", "path": "builtin:digits"}
    return PipelineConfig.model_validate(
        {"name": "named", "data": data, "task": task, "model": model}
    )


NETWORK = config_of(kind=KIND, weights="imagenet")
TINY = config_of(kind="bert", weights="tiny-bert")


class Server(ThreadingHTTPServer):
    """Answers with files: to Keras, and as Hugging Face's hub does."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.broken: set[str] = set()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def publish_bert(self, folder: Path) -> None:
        for file in (folder / name for name in REQUIRED_FILES):
            self.files[f"/tiny-bert/resolve/main/{file.name}"] = file.read_bytes()


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.path in self.server.broken:
            self.send_error(403)
            return
        content = self.server.files.get(self.path)
        self.send_response(404 if content is None else 200)
        self.send_header("X-Repo-Commit", COMMIT)
        if content is None:
            self.send_header("X-Error-Code", "EntryNotFound")
        else:
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content or b"")

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture(autouse=True)
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server of no files yet, and caches that are empty."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    with Server() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server
        server.shutdown()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's cache, which its client finds as it is imported."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub" / "hub"))
    return tmp_path / "hub" / "hub"


def publish(monkeypatch: pytest.MonkeyPatch, server: Server, content: bytes) -> PublishedFile:
    """Puts a file in the place of the one that Keras publishes."""
    whole, base = PUBLISHED[KIND]
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    file = replace(base, folder=f"{server.url}/", md5=md5)
    monkeypatch.setitem(published.PUBLISHED, KIND, (whole, file))
    return file


def cache_keys(config: PipelineConfig) -> tuple[dict[str, object], dict[str, object]]:
    """The settings in the cache keys of Transform and Trainer."""
    recipe = Recipe.of(config)
    return recipe.transform_config, recipe.trainer_config


def refusal(config: PipelineConfig) -> str:
    with pytest.raises(ConfigError) as caught:
        fetch_weights(config, lambda line: None)
    return str(caught.value)


def test_the_files_are_those_that_keras_itself_fetches() -> None:
    """By the tables and the functions of Keras's modules."""
    from tf_keras.src.applications import (
        efficientnet,
        imagenet_utils,
        mobilenet_v3,
        resnet,
        vgg16,
    )

    assert NETWORKS.keys() == PUBLISHED.keys()
    for kind, hashes in efficientnet.WEIGHTS_HASHES.items():
        files = PUBLISHED[f"efficientnet_{kind}"]
        assert tuple(file.md5 for file in files) == hashes
        names = [f"efficientnet{kind}.h5", f"efficientnet{kind}_notop.h5"]
        assert [file.name for file in files] == names
        assert {file.folder for file in files} == {efficientnet.BASE_WEIGHTS_PATH}
    for kind, size in {"mobilenet_v3": "large", "mobilenet_v3_small": "small"}.items():
        name = f"{size}_224_1.0_float"
        assert tuple(file.md5 for file in PUBLISHED[kind]) == mobilenet_v3.WEIGHTS_HASHES[name]
        whole, base = (file.address for file in PUBLISHED[kind])
        path = f"{mobilenet_v3.BASE_WEIGHT_PATH}weights_mobilenet_v3_{name}"
        assert (whole, base) == (f"{path}.h5", f"{path}_no_top_v2.h5")
    assert tuple(file.md5 for file in PUBLISHED["resnet50"]) == resnet.WEIGHTS_HASHES["resnet50"]
    assert {file.folder for file in PUBLISHED["resnet50"]} == {resnet.BASE_WEIGHTS_PATH}
    top, notop = PUBLISHED["vgg16"]
    assert (top.address, notop.address) == (vgg16.WEIGHTS_PATH, vgg16.WEIGHTS_PATH_NO_TOP)
    source = inspect.getsource(vgg16.VGG16)
    assert source.index(top.md5) < source.index(notop.md5)
    assert CLASS_INDEX.address == imagenet_utils.CLASS_INDEX_PATH
    assert CLASS_INDEX.md5 in inspect.getsource(imagenet_utils.decode_predictions)


def test_keras_fetches_a_file_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    file = publish(monkeypatch, server, b"weights")
    server.files[f"/{file.name}"] = b"weights"
    assert addresses_to_fetch(NETWORK) == [file.address]
    shown: list[str] = []
    assert fetch_weights(NETWORK, shown.append)
    assert shown == [f"fetching {file.name} from {file.address} into {keras_cache()}"]
    assert (keras_cache() / file.name).read_bytes() == b"weights"
    assert not fetch_weights(NETWORK, shown.append)
    assert server.asked == [f"/{file.name}"]
    assert not addresses_to_fetch(NETWORK)
    # A file that was put there by hand, and is another one.
    (keras_cache() / file.name).write_bytes(b"weigh")
    said_of_hash = refusal(NETWORK)
    assert f"{keras_cache() / file.name} has the MD5 " in said_of_hash
    assert f"has {file.md5}. The local file is truncated or another file; delete it" in said_of_hash
    assert len(server.asked) == 1


CONFIG = """
name: named
data: {format: csv, path: builtin:taxi, label: big_tipper}
task: binary
features: {company: {type: text, max_tokens: 8}}
model: {kind: bert, weights: tiny-bert}
"""


def test_the_hub_fetches_a_bert_once(hub: Path, server: Server, tmp_path: Path) -> None:
    server.publish_bert(BERT)
    (path := tmp_path / "named.yaml").write_text(CONFIG)
    config = load_config(path)
    company = config.trainer_settings.features["company"]
    assert isinstance(company, TextFeature)
    assert company.vocabulary == "tiny-bert"
    before = cache_keys(config)
    fetch_and_check_weights(config, lambda line: None)
    folder = Path(local_folder("tiny-bert"))
    assert folder.parent.parent.parent == hub
    for name in REQUIRED_FILES:
        assert (folder / name).read_bytes() == (BERT / name).read_bytes()
    requested = len(server.asked)
    fetch_and_check_weights(config, lambda line: None)
    assert len(server.asked) == requested
    after = cache_keys(config)
    # Both read files that are there now, and another content is another key.
    assert after[0] != before[0]
    assert after[1] != before[1]
    blob = (folder / "model.safetensors").resolve()
    content = bytearray(blob.read_bytes())
    content[-1] ^= 1
    blob.write_bytes(content)
    assert cache_keys(config)[1] != after[1]
    shown = refusal(TINY)
    assert f"{folder / 'model.safetensors'} has the hash " in shown
    assert f"the file on the hub has {blob.name}. The local file is damaged; delete {hub}/" in shown
