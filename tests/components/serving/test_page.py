"""The page of the server in a browser, and the OpenAPI document from which it is made."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import requests
import tensorflow as tf

from components.serving.model import Model, load_model
from components.serving.server.options import ServeOptions
from tests.support.browser import Browser
from tests.support.served_pictures import encode
from tests.support.served_trips import Pushed
from tests.support.servers import running
from trainer_module.export.interface import (
    INTERFACE_FILE,
    ModelInterface,
    RawColumn,
    read_interface,
)
from trainer_module.features.image import ImageFeature, decode_images

pytestmark = pytest.mark.slow

HOSTILE = "<img src=x onerror='window.hit=1'>\"'`$(id)\u202e"
CLASSES = [f"class {number:02}{HOSTILE}" for number in range(77)]
HOSTILE_INTERFACE = ModelInterface(
    (
        RawColumn(HOSTILE, "text", "string", False, 1),
        RawColumn("count", "count", "int64", True, 1),
        RawColumn("pair", "pair", "float32", False, 2),
        RawColumn("photo", "photo", "string", False, 1, "bytes"),
    ),
    HOSTILE,
    "string",
    "multiclass",
    classes=tuple(CLASSES),
)


class _Hostile(tf.Module):
    """The class of a row is its count, and its score grows with the picture's shade."""

    feature = ImageFeature(type="image", height=4, width=4)

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string, name="text"),
            tf.TensorSpec([None], tf.int64, name="count"),
            tf.TensorSpec([None, 2], tf.float32, name="pair"),
            tf.TensorSpec([None], tf.string, name="photo"),
        ]
    )
    def raw(
        self, text: tf.Tensor, count: tf.Tensor, pair: tf.Tensor, photo: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        names = tf.constant(CLASSES)
        shade = tf.reduce_mean(decode_images("photo", photo, self.feature), axis=[1, 2, 3])
        logits = tf.one_hot(count, len(CLASSES)) * (3 + shade[:, tf.newaxis])
        return {
            "class": tf.gather(names, count),
            "classes": tf.tile(names[tf.newaxis], [tf.shape(count)[0], 1]),
            "scores": tf.nn.softmax(logits),
            "echo": tf.strings.join([text, tf.strings.as_string(tf.reduce_sum(pair, 1))]),
        }


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Model:
    version, model = tmp_path_factory.mktemp("hostile") / "1", _Hostile()
    tf.saved_model.save(model, str(version), signatures={"serving_raw": model.raw})
    (version / INTERFACE_FILE).parent.mkdir(exist_ok=True)
    (version / INTERFACE_FILE).write_text(HOSTILE_INTERFACE.to_json())
    return load_model(version)


@pytest.fixture(scope="module")
def options(pushed: Pushed) -> ServeOptions:
    return ServeOptions("trips", pushed.serving)


@pytest.fixture(scope="module")
def server(options: ServeOptions) -> Iterator[str]:
    with running(options) as address:
        yield address


@pytest.fixture(scope="module")
def hostile_server(hostile: Model) -> Iterator[str]:
    with running(ServeOptions("hostile", Path()), hostile) as address:
        yield address


def document(address: str, **headers: str) -> Any:
    return requests.get(f"{address}/openapi.json", headers=headers, timeout=60).json()


def example(address: str, **headers: str) -> Any:
    return document(address, **headers)["components"]["schemas"]["Row"]["examples"][0]


def ask(address: str, name: str, body: dict[str, Any]) -> Any:
    return requests.post(f"{address}/v1/models/{name}:predict", json=body, timeout=60).json()


def test_openapi_document_describes_real_requests_and_answers(
    server: str, pushed: Pushed, instances: list[dict[str, Any]]
) -> None:
    from openapi_spec_validator import OpenAPIV31SpecValidator

    found = document(server)
    OpenAPIV31SpecValidator(found).validate()

    def schema(part: Any) -> jsonschema.Draft202012Validator:
        content = part["content"]["application/json"]["schema"]
        return jsonschema.Draft202012Validator(content | {"components": found["components"]})

    predict = found["paths"]["/v1/models/trips:predict"]["post"]
    row = example(server)
    rows = [row, *instances]
    columns = {key: [one[key] for one in rows] for key in row}
    bodies = [{"instances": rows, "top_k": 1}, {"inputs": columns}, {"instances": rows}]
    label = read_interface(pushed.version).label
    bodies.append({"instances": [row | {label: 1}]})
    bodies.append({"inputs": columns | {label: [1] * len(rows)}})
    for body in bodies:
        schema(predict["requestBody"]).validate(body)
        schema(predict["responses"]["200"]).validate(ask(server, "trips", body))
    for changed in ({"instances": [{**row, "fares": 1}]}, {"instances": rows, "top_k": 0}, {}):
        assert not schema(predict["requestBody"]).is_valid(changed)
        schema(predict["responses"]["default"]).validate(ask(server, "trips", changed))


def test_no_value_of_the_data_is_shown(server: str, options: ServeOptions) -> None:
    neutral = {"fare": 0, "price__EUR_": 0, "area": 0, "company": "", "tags": []}
    assert example(server) == example(server, host="evil.example") == neutral
    with running(replace(options, page=False)) as without:
        assert requests.get(without, timeout=60).status_code == 404
        assert example(without) == neutral


def test_page_predicts_by_clicking(browser: Browser, server: str) -> None:
    browser.open(f"{server}/")
    browser.wait_for("!document.querySelector('#ask').hidden")
    browser.evaluate(
        "(i => { i.value = '95.5'; i.dispatchEvent(new Event('input', {bubbles: true})) })"
        "([...document.querySelectorAll('label')].find(l => l.textContent === 'fare').control)"
    )
    browser.click("#predict")
    browser.wait_for("document.querySelector('.result')")
    row = {**example(server), "fare": 95.5, "company": None}
    answer = ask(server, "trips", {"instances": [row]})["predictions"][0]
    assert browser.evaluate("document.querySelector('.result').textContent") == answer["class"]
    shown = browser.evaluate("[...document.querySelectorAll('td.number')].map(e => e.textContent)")
    scores = sorted(answer["scores"], reverse=True)
    assert [float(text.rstrip("%")) for text in shown] == pytest.approx(
        [100 * score for score in scores], abs=0.051
    )
    command = browser.evaluate("document.querySelector('#command').textContent")
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=True, timeout=60)
    assert json.loads(done.stdout)["predictions"] == [answer]
    paths = ["/", "/openapi.json", "/v1/models/trips:predict"]
    assert browser.requests() == [server + path for path in paths]
    assert browser.errors() == []


def test_hostile_names_are_not_executed(
    browser: Browser, hostile_server: str, tmp_path: Path
) -> None:
    photo = tmp_path / "a 'white' $(touch hit).png"
    photo.write_bytes(encode())
    browser.open(f"{hostile_server}/", width=390)
    browser.wait_for("!document.querySelector('#ask').hidden")
    root = browser.call("DOM.getDocument")["root"]["nodeId"]
    node = browser.call("DOM.querySelector", nodeId=root, selector="input[type=file]")["nodeId"]
    browser.call("DOM.setFileInputFiles", files=[str(photo)], nodeId=node)
    browser.wait_for("document.querySelector('#command').textContent.includes('touch hit')")
    browser.evaluate("document.querySelector('textarea').value = `it's \\\\ \"new\"`")
    browser.evaluate("document.querySelector('input[type=number]').value = '76'")
    browser.evaluate("document.querySelector('#row').dispatchEvent(new Event('input'))")
    browser.click("#predict")
    browser.wait_for("document.querySelector('.result')")
    shown = CLASSES[76].replace("\u202e", "U+202E")
    assert browser.evaluate("document.querySelector('.result').textContent") == shown
    assert browser.evaluate("document.querySelectorAll('td.bar').length") == 10
    command = browser.evaluate("document.querySelector('#command').textContent")
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, check=True, cwd=tmp_path, timeout=60
    )
    (answer,) = json.loads(done.stdout)["predictions"]
    assert answer["echo"] == 'it\'s \\ "new"0.000000'
    assert max(answer["scores"]) == pytest.approx(np.exp(4) / (np.exp(4) + 76), abs=1e-5)
    assert [path.name for path in tmp_path.iterdir()] == [photo.name]
    assert browser.evaluate("window.hit === undefined")
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    assert browser.errors() == []
    # The policy stops other scripts, and requests to elsewhere.
    browser.evaluate(
        "(s => { s.textContent = 'window.hit = 2'; document.body.append(s) })"
        "(document.createElement('script'))"
    )
    assert browser.evaluate("fetch('http://127.0.0.1:9/').then(() => 1, error => 'stopped')")
    assert browser.evaluate("window.hit === undefined")
    assert sum("Content Security Policy" in str(error) for error in browser.errors()) >= 2


def test_page_needs_the_key(browser: Browser, options: ServeOptions) -> None:
    with running(replace(options, key="s3cret")) as address:
        page = requests.get(address, timeout=60)
        assert page.ok
        assert "trips" not in page.text
        for method, path in (("GET", "/openapi.json"), ("POST", "/"), ("GET", "//")):
            assert requests.request(method, address + path, timeout=60).status_code == 401
        browser.open(f"{address}/")
        browser.wait_for("!document.querySelector('#access').hidden")
        assert browser.evaluate("document.querySelector('#ask').hidden")
        browser.evaluate("document.querySelector('#key').value = 's3cret'")
        browser.click("#access button")
        browser.wait_for("!document.querySelector('#ask').hidden")
        browser.click("#predict")
        browser.wait_for("document.querySelector('.result')")
        assert "$SCOPELINE_API_KEY" in browser.evaluate(
            "document.querySelector('#command').textContent"
        )
