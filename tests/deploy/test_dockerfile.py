"""The image: its files, its user, and its code works without a checkout.

Building it takes a container engine and minutes; these tests need neither.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pipeline.kubeflow.data_check import SCRATCH_FOLDER
from pipeline.kubeflow.image import CODE_LABEL, code_hash
from pipeline.own_modules import PACKAGES

ROOT = Path(__file__).parents[2]
SUFFIXES = {".py", ".yaml", ".json", ".j2", ".css", ".html", ".js"}
"""Of the code, the examples, their JSON Schema, the templates of reports, and the server's page."""
DOCKERFILE = ROOT / "deploy" / "Dockerfile"


def read_instructions() -> list[tuple[str, str]]:
    """Name and arguments of each, with comments gone and continued lines joined."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    parted = (line.partition(" ") for line in joined.splitlines() if line)
    return [(name, arguments) for name, _, arguments in parted]


def last_stage() -> list[tuple[str, str]]:
    instructions = read_instructions()
    begins = [at for at, (name, _) in enumerate(instructions) if name == "FROM"]
    return instructions[begins[-1] :]


def context_copies() -> list[tuple[list[str], str]]:
    """What is copied from the checkout, and where to."""
    copies = [shlex.split(rest) for name, rest in read_instructions() if name == "COPY"]
    return [(words[:-1], words[-1]) for words in copies if not words[0].startswith("--from")]


def is_in_context(path: str) -> bool:
    """Whether .dockerignore lets a file in: the last rule that takes it or a folder of it holds."""
    parts = path.split("/")
    prefixes = ["/".join(parts[: at + 1]) for at in range(len(parts))]
    included = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line and not line.startswith("#"):
            rule = line.removeprefix("!")
            anywhere = rule.removeprefix("**/")
            names = (
                parts
                if anywhere != rule
                else [p for p in prefixes if p.count("/") == rule.count("/")]
            )
            if any(fnmatch.fnmatchcase(name, anywhere) for name in names):
                included = line.startswith("!")
    return included


@pytest.fixture(scope="module")
def image_code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the image has at /opt/scopeline, but for the environment."""
    folder = tmp_path_factory.mktemp("image") / "scopeline"
    folder.mkdir()
    for sources, target in context_copies():
        if "uv.lock" in sources:
            continue
        for pattern in sources:
            for found in sorted(ROOT.glob(pattern)):
                if found.is_dir():
                    shutil.copytree(found, folder / target, ignore=_outside_of_context)
                elif is_in_context(found.relative_to(ROOT).as_posix()):
                    shutil.copy(found, folder / target)
    return folder


def _outside_of_context(folder: str, names: list[str]) -> set[str]:
    relative = Path(folder).relative_to(ROOT)
    return {name for name in names if not is_in_context((relative / name).as_posix())}


def run_in_image(image_code: Path, tmp_path: Path, *arguments: str) -> str:
    """Runs Python elsewhere, with the environment's packages and the image's code."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(
            [str(image_code), *os.environ.get("PYTHONPATH", "").split(":")]
        ),
    }
    done = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_copied_files_exist_and_are_in_the_context() -> None:
    copies = context_copies()
    assert {source for sources, _ in copies for source in sources} >= {*PACKAGES, "configs"}
    for sources, _ in copies:
        for source in sources:
            found = list(ROOT.glob(source))
            assert found, source
            assert all(is_in_context(path.name) for path in found), source


def test_other_files_of_a_checkout_are_not_copied() -> None:
    paths = [
        ".git/config",
        ".venv/bin/python",
        ".env",
        "tests/conftest.py",
        "output/digits/metadata.db",
        "docs/config.md",
        "deploy/Dockerfile",
        "pipeline/__pycache__/run.cpython-311.pyc",
        "pipeline/kubeflow/__pycache__/step.cpython-311.pyc",
        "key.pem",
    ]
    assert [path for path in paths if is_in_context(path)] == []


def test_image_holds_only_code_and_examples(image_code: Path) -> None:
    found = (path for path in image_code.rglob("*") if "__pycache__" not in path.parts)
    files = [path for path in found if path.is_file()]
    others = {"LICENSE", "pyproject.toml"}
    assert {path.suffix for path in files if path.name not in others} == SUFFIXES
    assert not [path for path in files if "test" in path.name]


@pytest.mark.slow
def test_image_runs_from_any_folder_without_being_installed(
    image_code: Path, tmp_path: Path
) -> None:
    entry = next(rest for name, rest in last_stage() if name == "ENTRYPOINT")
    python, *arguments = re.findall(r'"([^"]+)"', entry)
    assert python == "python"
    assert "models" in run_in_image(image_code, tmp_path, *arguments, "--help")
    command = "from components.release import read_version; print(read_version())"
    without_packages = run_in_image(image_code, tmp_path, "-S", "-c", command)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert without_packages.strip() == version
    command = "from pipeline.kubeflow import image; print(image.__file__, image.code_hash())"
    place, found = run_in_image(image_code, tmp_path, "-c", command).split()
    assert Path(place).is_relative_to(image_code)
    assert found == code_hash()


def test_image_runs_as_a_numeric_user_and_writes_below_tmp() -> None:
    stage = dict(last_stage())
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", stage["USER"])
    (variables,) = [rest for name, rest in last_stage() if name == "ENV"]
    settings = dict(setting.split("=", 1) for setting in variables.split())
    assert settings["HOME"] == SCRATCH_FOLDER
    assert settings["TF_USE_LEGACY_KERAS"] == "1"
    assert settings["PATH"].startswith("/opt/scopeline/.venv/bin:")
    assert "PYTHONDONTWRITEBYTECODE" not in DOCKERFILE.read_text()
    assert last_stage()[-1][0] == "ENTRYPOINT"


def test_image_is_labelled_with_its_code_and_version() -> None:
    (labels,) = [rest for name, rest in last_stage() if name == "LABEL"]
    found = dict(label.split("=", 1) for label in shlex.split(labels))
    assert found[CODE_LABEL] == "${CODE}"
    assert found["org.opencontainers.image.version"] == "${VERSION}"
    arguments = {rest.split("=")[0] for name, rest in last_stage() if name == "ARG"}
    assert arguments == {"CODE", "VERSION", "REVISION"}


def make_image(
    tmp_path: Path, *arguments: str, docker: str | None
) -> subprocess.CompletedProcess[str]:
    """`make image`, with a program in docker's place that records its arguments."""
    if docker is not None:
        (tmp_path / "docker").write_text(f"#!/bin/sh\n{docker}\n")
        (tmp_path / "docker").chmod(0o755)
    return subprocess.run(
        [sys.executable, str(ROOT / "tools" / "build_image.py"), *arguments],
        cwd=tmp_path,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )


def test_make_image_builds_with_the_hash_of_the_code(tmp_path: Path) -> None:
    recorded = tmp_path / "arguments"
    done = make_image(tmp_path, docker=f'echo "$PWD" "$@" >> {recorded}')
    assert done.returncode == 0, done.stderr
    place, *words = recorded.read_text().splitlines()[-1].split()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert Path(place) == ROOT
    assert words[:3] == ["build", "--file=deploy/Dockerfile", f"--tag=scopeline:{version}"]
    assert f"--build-arg=CODE={code_hash()}" in words
    assert f"--build-arg=VERSION={version}" in words
    assert words[-1] == "."
    assert f"docker push scopeline:{version}" in done.stdout


@pytest.mark.parametrize(
    ("docker", "image", "code", "error"),
    [
        (None, "a:1", 2, "not installed.*--tag=a:1"),
        ('test "$1" = version', "a:1", 1, ""),
    ],
)
def test_make_image_without_docker_exits_with_the_reason(
    docker: str | None, image: str, code: int, error: str, tmp_path: Path
) -> None:
    done = make_image(tmp_path, image, docker=docker)
    assert done.returncode == code
    assert re.search(error, done.stderr, re.DOTALL)
    assert "Traceback" not in done.stderr
