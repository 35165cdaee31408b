"""Builds the container image of deploy/Dockerfile, with labels that describe its content."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from pipeline.kubeflow.image import code_hash, parse_image  # noqa: E402
from trainer_module.errors import ConfigError  # noqa: E402

EXIT_FAILED, EXIT_UNUSABLE = 1, 2
_PUSH = ["--push", "--sbom=true", "--provenance=mode=max"]


def read_version() -> str:
    """Returns the version of this checkout."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def read_revision() -> str:
    """Returns the commit of this checkout, or an empty string outside of a Git repository."""
    git = shutil.which("git")
    if git is None:
        return ""
    command = [git, "-C", str(ROOT), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def build_command(image: str, extra: str = "", push: bool = False) -> list[str]:
    """Returns docker's arguments for building the image from the repository's root.

    Args:
      push: push the image, with an SBOM and its provenance, instead of keeping it on this machine.
    """
    arguments = {"VERSION": read_version(), "REVISION": read_revision(), "CODE": code_hash()}
    arguments |= {"EXTRA": extra} if extra else {}
    build = [f"--build-arg={name}={value}" for name, value in arguments.items()]
    start = ["buildx", "build", *_PUSH] if push else ["build"]
    return [*start, "--file=deploy/Dockerfile", f"--tag={image}", *build, "."]


def find_obstacle(docker: str | None) -> str | None:
    """Returns the reason why docker cannot build images, with a remedy, or None if docker can."""
    if docker is None:
        return (
            "docker is not installed here. Install Docker Engine, or run the command below with "
            "another builder of images, such as buildah or podman:"
        )
    result = subprocess.run([docker, "version"], capture_output=True, text=True)
    if result.returncode:
        reason = (result.stderr.strip().splitlines() or ["no reason given"])[-1]
        return (
            f"docker cannot build images: {reason}\n"
            "Start docker, or run the command below with another builder:"
        )
    return None


def find_push_obstacle(docker: str) -> str | None:
    """Returns the reason why docker's builder cannot make an SBOM, with a remedy, or None."""
    inspect = subprocess.run([docker, "buildx", "inspect"], capture_output=True, text=True)
    if inspect.returncode:
        return "docker has no buildx, which makes the SBOM; install it, then run:"
    if re.search(r"^Driver:\s*docker$", inspect.stdout, re.MULTILINE) is None:
        return None
    info = [docker, "info", "--format={{.DriverStatus}}"]
    if "io.containerd.snapshotter" in subprocess.run(info, capture_output=True, text=True).stdout:
        return None
    return (
        "docker's default builder cannot make an SBOM without the image store of containerd. "
        "Run `docker buildx create --use`, then:"
    )


def main() -> int:
    """Builds the image, or prints the reason why docker cannot build it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("image", nargs="?", default=f"scopeline:{read_version()}")
    parser.add_argument(
        "--extra", default="", choices=["", "gpu"], help="`gpu` adds CUDA's libraries"
    )
    parser.add_argument(
        "--push",
        action="store_true",
        help="push the image to its registry, with an SBOM and its provenance",
    )
    options = parser.parse_args()
    image = options.image
    try:
        parse_image(image)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return EXIT_UNUSABLE
    docker = shutil.which("docker")
    command = build_command(image, options.extra, options.push)
    obstacle = find_obstacle(docker)
    if docker is not None and obstacle is None and options.push:
        obstacle = find_push_obstacle(docker)
    command_line = " ".join(["docker", *command])
    if docker is None or obstacle is not None:
        print(f"{obstacle}\n  {command_line}", file=sys.stderr)
        return EXIT_UNUSABLE
    print(command_line, flush=True)
    if subprocess.run([docker, *command], cwd=ROOT).returncode:
        return EXIT_FAILED
    if options.push:
        print(f"pushed {image}")
    else:
        print(f"built {image}; push it to a registry for a cluster: docker push {image}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
