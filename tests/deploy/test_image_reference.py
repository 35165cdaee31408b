"""Which image a config may name, and whether the code in it is the code here."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.kubeflow import image as image_module
from pipeline.kubeflow.image import CODE_LABEL, check_image, code_hash, parse_image
from pipeline.own_modules import PACKAGES
from trainer_module.errors import ConfigError

ROOT = Path(__file__).parents[2]
IMAGE = "registry.example.com:5000/team/scopeline:0.1.0"
DIGEST = f"sha256:{'0123456789abcdef' * 4}"


def install_docker(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Puts a program called docker, and nothing else, on the path."""
    docker = folder / "docker"
    docker.write_text(f"#!{sys.executable}\nimport sys, time\n{script}\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def says_labels(labels: dict[str, str] | None) -> str:
    """Like `docker image inspect --format` of the one image there is."""
    return (
        "assert sys.argv[1:3] == ['image', 'inspect']\n"
        f"assert sys.argv[-1] == {IMAGE!r}\n"
        f"print({json.dumps(labels)!r})"
    )


@pytest.mark.parametrize(
    ("image", "name", "tag", "digest"),
    [
        ("scopeline:0.1.0", "scopeline", "0.1.0", None),
        ("scopeline", "scopeline", None, None),
        ("localhost:5000/scopeline", "localhost:5000/scopeline", None, None),
        (
            "r.example.com:5000/a/b_c/d--e:v1_2.3-x",
            "r.example.com:5000/a/b_c/d--e",
            "v1_2.3-x",
            None,
        ),
        (f"Registry.example.com/a@{DIGEST}", "Registry.example.com/a", None, DIGEST),
        (f"r:5000/a:1@{DIGEST}", "r:5000/a", "1", DIGEST),
        ("[::1]:5000/a:1", "[::1]:5000/a", "1", None),
        ("europe-docker.pkg.dev/p-1/r/s:1", "europe-docker.pkg.dev/p-1/r/s", "1", None),
    ],
)
def test_names_of_images_are_taken_apart(
    image: str, name: str, tag: str | None, digest: str | None
) -> None:
    found = parse_image(image)
    assert (found.name, found.tag, found.digest) == (name, tag, digest)


@pytest.mark.parametrize(
    "image",
    [
        "",
        "Scopeline:0.1.0",
        "scopeline:",
        "scopeline:0.1.0:2",
        "scopeline:-1",
        f"scopeline:{'1' * 129}",
        "scopeline@sha256:12",
        "r:port/scopeline:1",
        "r:5000/:1",
        "a//b:1",
        "--help",
        "-scopeline:1",
        "scopeline:0.1.0\n",
        "sc\u00f6peline:1",
    ],
)
def test_what_no_registry_takes_is_refused(image: str) -> None:
    with pytest.raises(
        ConfigError, match=r"not the name of an image; expected .*/scopeline:0\.1\.0"
    ):
        parse_image(image)


def test_a_bad_name_says_which_key_of_the_config_has_it() -> None:
    with pytest.raises(ConfigError, match=r"^kubeflow\.image: found 'Bad'"):
        check_image("Bad")


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ("scopeline", "with no tag, which means `latest`.*such as scopeline:0.1.0"),
        ("r:5000/scopeline", "with no tag.*such as r:5000/scopeline:0.1.0"),
        ("r:5000/scopeline:latest", "with the tag `latest`.*such as r:5000/scopeline:0.1.0"),
    ],
)
def test_a_tag_that_moves_is_refused_unless_allowed(
    image: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=said):
        check_image(image)
    (warning,) = check_image(image, allow_latest=True)
    assert "docker is not installed" in warning


def test_a_digest_is_one_image_whatever_its_tag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for image in (f"scopeline@{DIGEST}", f"scopeline:latest@{DIGEST}"):
        (warning,) = check_image(image)
        assert "steps compare the code when they run" in warning


def test_an_image_with_the_code_of_here_gives_no_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_docker(tmp_path, monkeypatch, says_labels({CODE_LABEL: code_hash()}))
    assert check_image(IMAGE) == []


def test_an_image_with_other_code_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_docker(tmp_path, monkeypatch, says_labels({CODE_LABEL: "0123456789abcdef"}))
    (warning,) = check_image(IMAGE)
    assert "contains other code (0123456789abcdef)" in warning
    assert f"({code_hash()})" in warning
    assert "make image" in warning


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (says_labels(None), "the image was not built by `make image`"),
        (says_labels({CODE_LABEL: ""}), "the image was not built by `make image`"),
        ("sys.exit('Error: No such image: x')", "docker reports 'No such image: x'"),
        ("sys.exit(3)", "docker reports 'exit code 3'"),
        ("print('<html>')", "the answer of docker cannot be read"),
        ("time.sleep(60)", "docker did not answer within 1 s"),
    ],
)
def test_what_docker_does_not_tell_is_a_warning(
    script: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_module, "INSPECT_SECONDS", 1)
    install_docker(tmp_path, monkeypatch, script)
    (warning,) = check_image(IMAGE)
    assert f"{IMAGE} cannot be compared with the code on this machine: {reason}; the" in warning


def test_the_hash_follows_the_code_and_nothing_else(tmp_path: Path) -> None:
    def hash_there() -> str:
        command = "from pipeline.kubeflow.image import code_hash as h; print(h())"
        done = subprocess.run(
            [sys.executable, "-B", "-c", command], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignored)
    original = hash_there()
    assert original == code_hash()
    (tmp_path / "pipeline" / "notes.txt").write_text("nothing")
    (tmp_path / "mine.py").write_text("nothing = 1\n")
    assert hash_there() == original
    module = tmp_path / "components" / "__init__.py"
    module.write_text(module.read_text() + "# changed\n")
    changed = hash_there()
    assert changed != original
    (tmp_path / "trainer_module" / "errors.py").rename(tmp_path / "trainer_module" / "faults.py")
    (tmp_path / "trainer_module" / "errors.py").write_text("class ConfigError(Exception): pass\n")
    assert hash_there() not in (original, changed)
