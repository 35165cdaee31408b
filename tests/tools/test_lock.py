"""Packages in `uv.lock` need no compiler, and hash text as TFDV expects."""

from __future__ import annotations

import tomllib
from pathlib import Path

import farmhash
import pytest
from packaging.markers import Marker
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

ROOT = Path(__file__).parents[2]
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in range(39, 4, -1)] + [
    f"manylinux{year}_x86_64" for year in (2014, 2010, 1)
]
PURE_SOURCES = {"google-apitools", "kfp-server-api", "rouge-score"}
"""Published as sources alone, which are Python alone."""


def tags_of(python: tuple[int, int]) -> set[Tag]:
    """Those of the wheels that a Python can use on Linux (x86-64, glibc)."""
    interpreter = f"cp{python[0]}{python[1]}"
    return {
        *cpython_tags(python, platforms=PLATFORMS),
        *compatible_tags(python, interpreter, PLATFORMS),
    }


@pytest.mark.parametrize("python", [(3, 11), (3, 13)])
def test_no_locked_package_needs_a_compiler(python: tuple[int, int]) -> None:
    usable, lacking = tags_of(python), set()
    environment = {"python_full_version": f"{python[0]}.{python[1]}.0"}
    for package in tomllib.loads((ROOT / "uv.lock").read_text())["package"]:
        markers = package.get("resolution-markers", [])
        if markers and not any(Marker(marker).evaluate(environment) for marker in markers):
            continue
        files = [wheel["url"].rsplit("/", 1)[-1] for wheel in package.get("wheels", [])]
        has_wheel = any(usable & parse_wheel_filename(file)[3] for file in files)
        if "registry" in package["source"] and not has_wheel:
            lacking.add(package["name"])
    assert lacking <= PURE_SOURCES


TEXT = "Sphinx of black quartz, judge my vow; naïve café " * 9
FINGERPRINTS = {
    0: (0x9AE16A3B2F90404F, 0xDC56D17A),
    3: (0xFE648F0AA1634D75, 0xAB3B721C),
    8: (0xCD84338D0FBD53E4, 0x31A4BA47),
    16: (0xDAB0C8971AC7E9D2, 0x2659CE25),
    32: (0x10E0C757E5392250, 0xDD3A850C),
    64: (0xED38F8AB9629CA66, 0x0B521A8B),
    100: (0x68F3F319AB845684, 0x3EDAF560),
    300: (0xF7AE2ACE0397D77E, 0x68333292),
}
"""By the length of what begins `TEXT`, those of 64 and 32 bits that pyfarmhash 0.3.2 gives: TFDV
asks for that one, and each length goes another way through the algorithm."""


def test_fingerprints_are_those_that_tfdv_was_made_with() -> None:
    for length, expected in FINGERPRINTS.items():
        begin = TEXT[:length]
        assert (farmhash.fingerprint64(begin), farmhash.fingerprint32(begin)) == expected
