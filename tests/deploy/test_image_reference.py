"""Image references in a config: names, tags, and whether image and checkout have equal code."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pipeline.kubeflow import image as image_module
from pipeline.kubeflow.image import CODE_LABEL, check_image, code_hash, parse_image
from pipeline.own_modules import PACKAGES
from trainer_module.errors import ConfigError

IMAGE = "registry.example.com:5000/team/scopeline:0.1.0"
DIGEST = f"sha256:{'0123456789abcdef' * 4}"
REFERENCES = {
    "scopeline": ("scopeline", None, None),
    "localhost:5000/scopeline": ("localhost:5000/scopeline", None, None),
    "r.example.com:5000/a/b_c/d--e:v1_2.3-x": (
        "r.example.com:5000/a/b_c/d--e",
        "v1_2.3-x",
        None,
    ),
    f"r:5000/a:1@{DIGEST}": ("r:5000/a", "1", DIGEST),
    "[::1]:5000/a:1": ("[::1]:5000/a", "1", None),
}
INVALID = ["", "Scopeline:0.1.0", "scopeline:0.1.0:2", "scopeline@sha256:12", "a//b:1", "--help"]


def install_docker(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Puts a program called docker, and nothing else, on the path."""
    docker = folder / "docker"
    docker.write_text(f"#!{sys.executable} -S\nimport sys\n{script}\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def print_labels(labels: dict[str, str] | None) -> str:
    """A script like `docker image inspect --format` of the only image."""
    return (
        "assert sys.argv[1:3] == ['image', 'inspect']\n"
        f"assert sys.argv[-1] == {IMAGE!r}\n"
        f"print({json.dumps(labels)!r})"
    )


def test_references_are_parsed() -> None:
    for image, parts in REFERENCES.items():
        found = parse_image(image)
        assert (found.name, found.tag, found.digest) == parts


def test_invalid_references_are_refused() -> None:
    for image in INVALID:
        with pytest.raises(ConfigError, match="name of an image"):
            parse_image(image)
    with pytest.raises(ConfigError, match=r"^kubeflow\.image: found 'Bad'"):
        check_image("Bad")


def test_moving_tag_is_refused_unless_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for image in ("scopeline", "r:5000/scopeline:latest"):
        with pytest.raises(ConfigError, match="latest"):
            check_image(image)
        (warning,) = check_image(image, allow_latest=True)
        assert "docker" in warning
    assert len(check_image(f"scopeline:latest@{DIGEST}")) == 1


def test_image_with_other_code_gives_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_docker(tmp_path, monkeypatch, print_labels({CODE_LABEL: code_hash()}))
    assert check_image(IMAGE) == []
    install_docker(tmp_path, monkeypatch, print_labels({CODE_LABEL: "0123456789abcdef"}))
    (warning,) = check_image(IMAGE)
    assert "0123456789abcdef" in warning
    assert code_hash() in warning


def test_failure_of_docker_is_only_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for script, reason in (
        (print_labels(None), "make image"),
        ("sys.exit('Error: No such image: x')", "No such image: x"),
        ("print('<html>')", "cannot be read"),
    ):
        install_docker(tmp_path, monkeypatch, script)
        (warning,) = check_image(IMAGE)
        assert IMAGE in warning
        assert reason in warning


def test_hash_depends_on_the_code_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_module, "ROOT", tmp_path)
    module = tmp_path / PACKAGES[0] / "room" / "errors.py"
    module.parent.mkdir(parents=True)
    module.write_text("nothing = 1\n")
    original = code_hash()
    (module.parent / "notes.txt").write_text("nothing")
    (tmp_path / "mine.py").write_text("nothing = 1\n")
    assert code_hash() == original
    module.write_text("nothing = 2\n")
    changed = code_hash()
    module.rename(module.with_name("faults.py"))
    assert len({original, changed, code_hash()}) == 3
