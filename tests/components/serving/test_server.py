"""The server as clients see it: over a real socket, by plain HTTP and by Triton's own client."""

from __future__ import annotations

import base64
import gzip
import json
import socket
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import requests
import tritonclient.http as triton

from components.serving.model import Model
from components.serving.server.options import ServeOptions
from tests.support import hostile
from tests.support.served_trips import Pushed, expected
from tests.support.servers import running
from tests.support.trainer_data import to_example

Rows = list[dict[str, Any]]


def ask(server: str, body: dict[str, Any], verb: str = "predict", path: str = "") -> Any:
    answer = requests.post(f"{server}/v1/models/trips{path}:{verb}", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_rows_columns_and_examples_are_answered_as_the_model_does(
    server: str, model: Model, rows: Rows, instances: Rows
) -> None:
    right = expected(model, rows)
    by_row = ask(server, {"instances": instances})["predictions"]
    assert by_row[0].keys() == {"class", "classes", "scores"}
    assert by_row[0]["classes"] == ["0", "1"]
    np.testing.assert_allclose([row["scores"][1] for row in by_row], right, atol=1e-6)
    columns = {name: [row[name] for row in instances] for name in instances[0]}
    by_column = ask(server, {"inputs": columns, "signature_name": "serving_raw"})["outputs"]
    np.testing.assert_allclose(np.array(by_column["scores"])[:, 1], right, atol=1e-6)
    encoded = [{"b64": base64.b64encode(to_example(row)).decode()} for row in rows]
    label, version = "/labels/stable", f"/versions/{model.folder.name}"
    of_examples = ask(server, {"instances": encoded}, path=label)["predictions"]
    named = ask(server, {"inputs": {"examples": encoded}}, path=version)["outputs"]
    np.testing.assert_allclose([row["scores"][1] for row in of_examples], right, atol=1e-6)
    np.testing.assert_allclose(np.array(named["scores"])[:, 1], right, atol=1e-6)


def test_columns_may_have_their_names_in_the_data(server: str, rows: Rows, instances: Rows) -> None:
    own = [{name: row[name] for name in row if name != "trip id"} for row in rows[:3]]
    right = ask(server, {"instances": instances[:3]})["predictions"]
    assert ask(server, {"instances": own})["predictions"] == right
    assert ask(server, {"instances": [own[0], *instances[1:3]]})["predictions"] == right
    columns = {name: [row[name] for row in own] for name in own[0]}
    outputs = ask(server, {"inputs": columns})["outputs"]
    assert outputs["class"] == [answer["class"] for answer in right]
    price = own[0].pop("price (EUR)")
    body = {"examples": own[:1], "context": {"price (EUR)": price}}
    pairs = ask(server, body, verb="classify")["results"][0]
    assert [score for _, score in pairs] == right[0]["scores"]
    body = {"instances": [{**instances[0], "price (EUR)": price}]}
    refused = requests.post(f"{server}/v1/models/trips:predict", json=body, timeout=30)
    assert (refused.status_code, "has a column twice" in refused.json()["error"]) == (400, True)


def test_rows_of_the_data_are_answered_with_their_other_columns(
    server: str, rows: Rows, instances: Rows
) -> None:
    right = ask(server, {"instances": instances[:2]})["predictions"]
    labelled = [{**row, "tipped": 1.0} for row in rows[:2]]
    assert "trip id" in labelled[0]
    assert ask(server, {"instances": labelled})["predictions"] == right
    columns = {name: [row[name] for row in labelled] for name in labelled[0]}
    outputs = ask(server, {"inputs": columns})["outputs"]
    assert outputs["class"] == [answer["class"] for answer in right]
    body = {"examples": [instances[0]], "context": {"trip id": 7}}
    pairs = ask(server, body, verb="classify")["results"][0]
    assert [score for _, score in pairs] == right[0]["scores"]
    body = {"instances": [{**labelled[0], "fares": 7}]}
    refused = requests.post(f"{server}/v1/models/trips:predict", json=body, timeout=30)
    assert "has 'fares', which the model does not take; did you mean" in refused.json()["error"]


def test_classify_gives_pairs_and_regress_is_refused(server: str, instances: Rows) -> None:
    context = {"company": "Ace"}
    rows = [{k: v for k, v in row.items() if k != "company"} for row in instances[:3]]
    results = ask(server, {"examples": rows, "context": context}, "classify")["results"]
    assert [label for label, _ in results[0]] == ["0", "1"]
    assert sum(score for _, score in results[2]) == pytest.approx(1)
    answer = requests.post(
        f"{server}/v1/models/trips:regress", json={"examples": instances}, timeout=60
    )
    assert answer.status_code == 400
    assert answer.json()["error"] == "the model predicts a class: use :classify or :predict."


def test_top_k_keeps_the_first_classes_of_the_full_answer(server: str, instances: Rows) -> None:
    full = ask(server, {"instances": instances})["predictions"]
    columns = {name: [row[name] for row in instances] for name in instances[0]}
    for top_k in (1, 2, 10**6):
        right = []
        for row in full:
            pairs = sorted(zip(row["classes"], row["scores"], strict=True), key=lambda p: -p[1])
            classes, scores = map(list, zip(*pairs[:top_k], strict=True))
            right.append({"class": row["class"], "classes": classes, "scores": scores})
        assert {row["class"] for row in right} == {"0", "1"}
        assert ask(server, {"instances": instances, "top_k": top_k})["predictions"] == right
        outputs = ask(server, {"inputs": columns, "top_k": top_k})["outputs"]
        assert outputs == {name: [row[name] for row in right] for name in outputs}
        pairs = ask(server, {"examples": instances, "top_k": top_k}, "classify")["results"]
        assert pairs == [
            list(map(list, zip(r["classes"], r["scores"], strict=True))) for r in right
        ]
    for wrong in (0, -1, 1.5, "2", True, [1]):
        body = {"instances": instances[:1], "top_k": wrong}
        refused = requests.post(f"{server}/v1/models/trips:predict", json=body, timeout=60)
        assert refused.status_code == 400
        assert "expected a whole number of at least 1" in refused.json()["error"]


def test_missing_values_are_nan_null_or_empty(server: str, model: Model, rows: Rows) -> None:
    body = b'{"instances": [{"fare": 50, "price__EUR_": 2, "area": %s, "company": %s, "tags": []}]}'
    one = {**rows[0], "fare": 50.0, "price (EUR)": 2.0, "area": None, "company": None, "tags": None}
    right = expected(model, [one])[0]
    for area, company in ((b"NaN", b'""'), (b"null", b"null")):
        given = body % (area, company)
        answer = requests.post(f"{server}/v1/models/trips:predict", data=given, timeout=60).json()
        assert answer["predictions"][0]["scores"][1] == pytest.approx(right, abs=1e-6)
    of_null = given.replace(b"[]", b"null")
    answer = requests.post(f"{server}/v1/models/trips:predict", data=of_null, timeout=60).json()
    assert answer["predictions"][0]["scores"][1] == pytest.approx(right, abs=1e-6)


def test_versions_metadata_and_health(server: str, model: Model) -> None:
    def get(path: str) -> Any:
        return requests.get(f"{server}{path}", timeout=60).json()

    (state,) = get("/v1/models/trips")["model_version_status"]
    assert (state["version"], state["state"]) == (model.folder.name, "AVAILABLE")
    signatures = get("/v1/models/trips/metadata")["metadata"]["signature_def"]["signature_def"]
    assert signatures["serving_raw"]["inputs"]["area"]["dtype"] == "DT_DOUBLE"
    assert signatures["serving_default"]["outputs"]["class"]["dtype"] == "DT_STRING"
    assert get("/healthz") == {"live": True}


@pytest.mark.parametrize("is_binary", [True, False])
def test_open_inference_answers_equal_the_models(
    server: str, model: Model, rows: Rows, instances: Rows, is_binary: bool
) -> None:
    with triton.InferenceServerClient(server.removeprefix("http://")) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("trips")
        inputs = []
        for given in client.get_model_metadata("trips")["inputs"]:
            name, datatype = given["name"], given["datatype"]
            values = triton_values([row[name] for row in instances], datatype)
            tensor = triton.InferInput(name, list(values.shape), datatype)
            tensor.set_data_from_numpy(values, binary_data=is_binary)
            inputs.append(tensor)
        names = ("scores", "class")
        outputs = [triton.InferRequestedOutput(name, binary_data=is_binary) for name in names]
        answer = client.infer("trips", inputs, outputs=outputs, request_id="7")
        top = client.infer("trips", inputs, parameters={"top_k": 1})
    np.testing.assert_allclose(answer.as_numpy("scores")[:, 1], expected(model, rows), atol=1e-6)
    scores = answer.as_numpy("scores")
    np.testing.assert_array_equal(top.as_numpy("scores")[:, 0], scores.max(1))
    np.testing.assert_array_equal(top.as_numpy("classes")[:, 0], top.as_numpy("class"))
    assert answer.get_response()["id"] == "7"
    assert set(answer.as_numpy("class").astype(str)) <= {"0", "1", "b'0'", "b'1'"}


def triton_values(values: list[Any], datatype: str) -> np.ndarray:
    if isinstance(values[0], list):
        return np.array([[*row, "", ""][:2] for row in values], object)
    if datatype == "BYTES":
        return np.array([value or "" for value in values], object)
    dtype = {"FP32": np.float32, "FP64": np.float64}[datatype]
    return np.array([np.nan if value is None else value for value in values], dtype)


def test_malformed_requests_are_refused(server: str, instances: Rows) -> None:
    row = {**instances[1], "tags": ["t1"], "company": "Ace", "area": 8}
    requested = list(hostile.wrong(row))
    assert len(requested) >= 150
    with requests.Session() as session:
        for one in requested:
            answer = session.post(f"{server}{one.path}", data=one.body, timeout=60)
            assert 400 <= answer.status_code < 500, (one, answer.text[:300])
            assert len(answer.json()["error"]) > 15, one
    assert ask(server, {"instances": [row]})["predictions"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"fares": 1}, "instances[0] has 'fares'"),
        ({"fare": float("inf")}, "'fare' of row 0"),
        ({"fare": 1e300}, "'fare' of row 0 is 1e+300"),
        ({"area": 2.5}, "'area' of row 0 is 2.5"),
        ({"company": {"b64": "*"}}, "'company' of row 0"),
    ],
)
def test_wrong_value_names_its_column_and_row(
    server: str, instances: Rows, changed: dict[str, Any], message: str
) -> None:
    body = json.dumps({"instances": [{**instances[0], **changed}]})
    answer = requests.post(f"{server}/v1/models/trips:predict", data=body, timeout=60)
    assert answer.status_code == 400
    assert message in answer.json()["error"]


def test_paths_that_are_not_there_are_404(server: str) -> None:
    for path, message in {
        "/v1/models/trip": "there is no model 'trip'; this server has 'trips'",
        "/v2/models/trip/ready": "there is no model 'trip'",
        "/v2/models/trips/versions/1/ready": "version 1 is not in service",
        "/v1/models/trips/versions/1": "there is no version 1",
        "/nothing": "There is no GET /nothing; this server answers /v1/models/",
    }.items():
        answer = requests.get(f"{server}{path}", timeout=60)
        assert answer.status_code == 404
        assert message in answer.json()["error"]
    assert requests.get(f"{server}/v1/models/trips:predict", timeout=60).status_code == 405


def test_unsupported_parts_of_open_inference_are_refused(server: str, pushed: Pushed) -> None:
    example = {"name": "examples", "datatype": "BYTES", "shape": [1], "data": [""]}
    whole = {"name": "area", "datatype": "INT64", "shape": [1], "data": [1.5]}
    scores = {"name": "scores", "parameters": {"classification": 2}}

    def infer(**body: Any) -> Any:
        return requests.post(f"{server}/v2/models/trips/infer", json=body, timeout=60).json()

    assert "id" not in infer(inputs=[example], id=None)
    assert "'examples' occurs twice" in infer(inputs=[example, example])["error"]
    assert "must have only integers" in infer(inputs=[whole])["error"]
    assert (
        "unsupported parameter 'classification'"
        in infer(inputs=[example], outputs=[scores])["error"]
    )
    assert "has '[]'" in infer(inputs=[example], outputs=[{"name": []}])["error"]


def test_body_too_large_or_too_slow_is_refused(server: str) -> None:
    address = server.removeprefix("http://").split(":")
    head = "POST /v1/models/trips:predict HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n"
    for length, status in ((1 << 30, b"413"), (100, b"408")):
        with socket.create_connection((address[0], int(address[1])), timeout=60) as connection:
            connection.sendall(head.format(length).encode() + b"{")
            assert connection.recv(1000).split()[1] == status
    streamed = requests.post(
        f"{server}/v1/models/trips:predict", data=(b" " * 100_000 for _ in range(20)), timeout=60
    )
    assert streamed.status_code == 413
    assert streamed.json()["error"].startswith("the body is larger than 1,048,576 bytes")


def test_compressed_bodies_have_the_same_limits(server: str, instances: Rows) -> None:
    url, body = (
        f"{server}/v1/models/trips:predict",
        json.dumps({"instances": instances[:2]}).encode(),
    )

    def post(encoding: str, packed: bytes) -> requests.Response:
        return requests.post(url, packed, headers={"Content-Encoding": encoding}, timeout=60)

    right = requests.post(url, body, timeout=60).json()
    for encoding, packed in (
        ("gzip", gzip.compress(body)),
        ("GZip", gzip.compress(body)),
        ("deflate", zlib.compress(body)),
        ("identity", body),
    ):
        assert post(encoding, packed).json() == right
    for encoding, packed, status, message in (
        ("br", body, 415, "use gzip or deflate"),
        ("gzip", body, 400, "not match its Content-Encoding"),
        ("gzip", gzip.compress(body)[:-4], 400, "data is incomplete"),
        ("gzip", gzip.compress(b" " * (1 << 26)), 413, "larger than 1,048,576 bytes"),
    ):
        answer = post(encoding, packed)
        assert answer.status_code == status
        assert message in answer.json()["error"]


def test_requests_without_the_api_key_are_refused(options: ServeOptions, instances: Rows) -> None:
    with running(replace(options, key="s3cret")) as server:
        url, body = f"{server}/v1/models/trips:predict", {"instances": instances[:1]}
        for headers in ({}, {"Authorization": "Bearer s3cre"}, {"X-API-Key": "S3cret"}):
            answer = requests.post(url, json=body, headers=headers, timeout=60)
            assert answer.status_code == 401
            assert "send the header Authorization" in answer.json()["error"]
        for headers in ({"Authorization": "Bearer s3cret"}, {"X-API-Key": "s3cret"}):
            assert requests.post(url, json=body, headers=headers, timeout=60).ok
        assert requests.get(f"{server}/healthz", timeout=60).ok
        assert requests.get(f"{server}/metrics", timeout=60).status_code == 401


def test_metrics_count_predictions_and_requests(server: str, instances: Rows) -> None:
    def read() -> dict[str, float]:
        lines = requests.get(f"{server}/metrics", timeout=60).text.splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def total(found: dict[str, float]) -> float:
        return sum(v for k, v in found.items() if k.startswith("scopeline_predictions_total"))

    before = read()
    ask(server, {"instances": instances[:50]})
    after = read()
    assert total(after) - total(before) == 50
    name = 'scopeline_request_seconds_count{route="predict",status="200"}'
    assert after[name] - before.get(name, 0) == 1
    assert after["scopeline_queue_rows"] == 0
    assert after["scopeline_serving_version"] > 1
