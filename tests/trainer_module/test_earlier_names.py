"""Import paths that earlier pages and pushed versions name lead where they led."""

from __future__ import annotations

from importlib import import_module

import pytest


@pytest.mark.parametrize(
    ("earlier", "now"),
    [
        # Of docs/your-code.md, in a `run_fn` of the user's.
        ("trainer_module.models.building:build_model", "trainer_module.trainer"),
        # In the manifest of each variant, as `how_to_load`.
        ("trainer_module.variants.running:open_variant", "trainer_module.export.variants.running"),
    ],
)
def test_an_earlier_name_is_the_same_function(earlier: str, now: str) -> None:
    module, _, name = earlier.partition(":")
    assert getattr(import_module(module), name) is getattr(import_module(now), name)
