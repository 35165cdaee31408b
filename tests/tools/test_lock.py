"""What `uv.lock` installs needs no compiler, and is what the libraries were made with."""

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


@pytest.mark.parametrize("python", [(3, 11), (3, 12), (3, 13)])
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
    1: (0x79A6925F52D630A0, 0xCEB7AD29),
    3: (0xFE648F0AA1634D75, 0xAB3B721C),
    4: (0xDF828F08473F1D30, 0x48E3FBF0),
    5: (0xD224EBE81203B10F, 0x9159BAAB),
    8: (0xCD84338D0FBD53E4, 0x31A4BA47),
    9: (0xDA2841DB9E264975, 0xF5915A94),
    12: (0x43AF5D1DD86C7967, 0xEB130CA7),
    13: (0x73630A42D30D2CD7, 0xB7B0C269),
    16: (0xDAB0C8971AC7E9D2, 0x2659CE25),
    17: (0xAE48DB80A406673A, 0xF1350450),
    24: (0x10587C51A4454DD9, 0xB80F2BBF),
    25: (0xF4F707324DE9EFEF, 0x0C8DC876),
    32: (0x10E0C757E5392250, 0xDD3A850C),
    33: (0x5AA182CBB5CE4373, 0x9B5C606B),
    64: (0xED38F8AB9629CA66, 0x0B521A8B),
    65: (0x4B00D583D68DBDF8, 0xD630CA10),
    100: (0x68F3F319AB845684, 0x3EDAF560),
    128: (0x891D3E83EEEAC18A, 0x669B2ABA),
    129: (0xF4A89B080C37C623, 0x12BCEC62),
    300: (0xF7AE2ACE0397D77E, 0x68333292),
}
"""By the length of what begins `TEXT`, those of 64 and 32 bits that pyfarmhash 0.3.2 gives: TFDV
asks for that one, and each length goes another way through the algorithm."""


@pytest.mark.parametrize("length", FINGERPRINTS)
def test_fingerprints_are_those_that_tfdv_was_made_with(length: int) -> None:
    begin = TEXT[:length]
    assert (farmhash.fingerprint64(begin), farmhash.fingerprint32(begin)) == FINGERPRINTS[length]
