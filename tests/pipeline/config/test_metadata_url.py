"""The URL of a metadata server is read, or refused without showing a password."""

from __future__ import annotations

import pytest

from pipeline.config.metadata_url import MetadataServer, parse_metadata_url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("mysql://me@db.example.com/meta", MetadataServer("db.example.com", 3306, "me", "meta")),
        ("mysql://me%40x@[::1]:33/m-1", MetadataServer("::1", 33, "me@x", "m-1")),
    ],
)
def test_url_is_taken_apart(url: str, expected: MetadataServer) -> None:
    assert parse_metadata_url(url) == expected


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://me:hush/hush@db/meta", "found a password in 'mysql://me:***@db/meta'"),
        ("me:hush@db/meta", "found 'me:***@db/meta'; expected the URL of a server"),
        ("mysql://me@/meta", "without a host"),
    ],
)
def test_invalid_url_is_refused(url: str, words: str) -> None:
    with pytest.raises(ValueError, match="found") as caught:
        parse_metadata_url(url)
    assert words in str(caught.value)
    assert "hush" not in str(caught.value)
