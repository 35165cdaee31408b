"""Reports in a browser, which all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser import EXECUTABLE, Browser


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser without network."""
    if EXECUTABLE is None:
        pytest.skip("there is no Chromium here; `apt-get install -y chromium` brings it")
    with Browser(tmp_path_factory.mktemp("browser")) as started:
        yield started
