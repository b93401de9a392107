"""Content encodings: decoded within a limit, encoded again."""

import gzip
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latchguard.integrations.encodings import UndecodableError, decode_body, encode_body

LIMIT = 1 << 20
NAMES = ["gzip", "x-gzip", "deflate", "br", "zstd"]


@given(body=st.binary(max_size=3000), names=st.lists(st.sampled_from([*NAMES, "identity", "GZIP"]), max_size=3))
def test_encoding_round_trips(body: bytes, names: list[str]) -> None:
    """What was encoded under a header decodes under it, in whatever order the header names encodings."""
    encodings = ", ".join(names)
    assert decode_body(encode_body(body, encodings), encodings, LIMIT) == body


@pytest.mark.parametrize("name", NAMES)
def test_same_body_gives_same_bytes(name: str) -> None:
    """No clock and no file name goes into the bytes: a provider's cache sees the same request."""
    assert encode_body(b"body" * 99, name) == encode_body(b"body" * 99, name)
    assert encode_body(b"body", "gzip")[4:8] == bytes(4)


def test_other_tools_read_what_was_encoded() -> None:
    """The encodings gzip and deflate are what the standard library reads."""
    assert gzip.decompress(encode_body(b"body", "gzip")) == b"body"
    assert zlib.decompress(encode_body(b"body", "deflate")) == b"body"


def test_raw_deflate_is_read() -> None:
    """Some clients send deflate without its zlib frame."""
    stream = zlib.compressobj(wbits=-15)
    assert decode_body(stream.compress(b"body") + stream.flush(), "deflate", LIMIT) == b"body"


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_members_that_follow_one_another_are_read(name: str) -> None:
    """A gzip or zstd body may be several, one after the other."""
    assert decode_body(encode_body(b"one ", name) + encode_body(b"two", name), name, LIMIT) == b"one two"


@pytest.mark.parametrize("name", NAMES)
def test_bomb_is_not_built(name: str) -> None:
    """Decoding stops at the limit, however much a body would become."""
    bomb = encode_body(bytes(LIMIT * 8), name)
    assert decode_body(bomb, name, LIMIT * 8) == bytes(LIMIT * 8)
    with pytest.raises(UndecodableError) as caught:
        decode_body(bomb, name, LIMIT)
    assert caught.value.unguarded == "too-large"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("damage", ["cut", "other"])
def test_damaged_bytes_are_named(name: str, damage: str) -> None:
    """Cut bytes and bytes of no such encoding are broken, never decoded in part."""
    raw = encode_body(bytes(range(256)) * 9, name)[:-9] if damage == "cut" else b"\xff no encoding at all \xff" * 3
    with pytest.raises(UndecodableError) as caught:
        decode_body(raw, name, LIMIT)
    assert caught.value.unguarded == "encoding-broken"


@pytest.mark.parametrize("name", ["compress", "aes128gcm", "gzip;q=1"])
def test_unknown_encoding_is_named(name: str) -> None:
    """An encoding without a decoder is unknown."""
    with pytest.raises(UndecodableError) as caught:
        decode_body(b"x", name, LIMIT)
    assert caught.value.unguarded == "encoding-unknown"


def test_brotli_without_its_library_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brotli is read where a library for it is installed, and only there."""
    monkeypatch.setitem(sys.modules, "brotli", None)
    monkeypatch.setitem(sys.modules, "brotlicffi", None)
    with pytest.raises(UndecodableError) as caught:
        decode_body(b"x", "br", LIMIT)
    assert caught.value.unguarded == "encoding-unknown"
