"""Writes a picture of the page of `serve`: `python tools/capture_page.py docs/page.png`.

Requires Chromium and a running server: `python local_runner.py serve`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.browser import Browser  # noqa: E402


def main() -> None:
    """Sends the example of the page, and writes the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--address", default="http://127.0.0.1:8501/")
    arguments = parser.parse_args()
    # The browser may still write its files while they are removed.
    profiles = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    with profiles as profile, Browser(Path(profile)) as browser:
        browser.open(arguments.address, width=1000)
        browser.wait_for("!document.querySelector('#ask').hidden")
        browser.click("#predict")
        browser.wait_for("document.querySelector('.result')")
        browser.screenshot(arguments.picture)


if __name__ == "__main__":
    main()
