"""Which of several entries for one tool server stays."""

from itertools import permutations
from typing import Any

import pytest
from attrs import frozen

from latchguard.core.errors import InvalidValueError
from latchguard.tools import dedupe_toolsets


def server(server_id: str, key: Any = "", *, preferred: Any = False, url: str = "https://x/mcp") -> dict[str, Any]:
    return {"id": server_id, "url": url, "dedup_key": key, "dedup_preferred": preferred}


def kept(*servers: dict[str, Any]) -> list[str]:
    return [entry["id"] for entry in dedupe_toolsets(servers)]


def test_entries_of_one_key_become_the_smallest_id() -> None:
    """With no mark the lexicographically smallest id stays, whatever the order."""
    servers = (server("b10", "k"), server("b9", "k", url="https://x/mcp?token=1"), server("a", "other"))
    assert [sorted(kept(*order)) for order in permutations(servers)] == [["a", "b10"]] * 6


def test_the_marked_entry_stays() -> None:
    """The preferred entry survives, even where its id is larger."""
    assert kept(server("a", "k"), server("b", "k", preferred=True), server("c", "k")) == ["b"]


def test_order_and_objects_are_kept() -> None:
    """What stays are the very objects, in their order."""
    servers = [server("z"), server("b", "k"), server("a", "k"), server("y")]
    found = dedupe_toolsets(servers)
    assert [id(entry) for entry in found] == [id(servers[0]), id(servers[2]), id(servers[3])]


@pytest.mark.parametrize("key", ["", " ", "\t\n", None])
def test_a_blank_key_never_collapses(key: str | None) -> None:
    """Entries without a key stay apart, with equal URLs too."""
    assert kept(server("a", key), server("b", key)) == ["a", "b"]


@pytest.mark.parametrize(
    ("first", "second"), [("tenant-a", " tenant-a "), ("tenant-a", "Tenant-A"), ("\u00e9", "e\u0301")]
)
def test_keys_are_compared_as_they_are(first: str, second: str) -> None:
    """No trimming, no folding, no normalising: another spelling is another server."""
    assert kept(server("a", first), server("b", second)) == ["a", "b"]


def test_urls_say_nothing() -> None:
    """Entries of the same URL without a common key are different servers."""
    assert kept(server("a", "k1"), server("b", "k2"), server("c")) == ["a", "b", "c"]


def test_a_missing_key_is_blank() -> None:
    """Entries that were stored before the fields existed stay as they are."""
    assert kept({"id": "a"}, {"id": "b"}) == ["a", "b"]


@frozen
class Entry:
    id: str
    dedup_key: str = ""
    dedup_preferred: bool = False


def test_objects_are_read_like_mappings() -> None:
    """A host's own class with these attributes is taken as it is."""
    assert dedupe_toolsets([Entry("b", "k"), Entry("a", "k"), Entry("c")]) == [Entry("a", "k"), Entry("c")]


@pytest.mark.parametrize(
    ("servers", "path"),
    [
        ([server("a", "k", preferred=True), server("b", "k", preferred=True)], "servers[1].dedup_preferred"),
        ([server("z"), server("a", "", preferred=True)], "servers[1].dedup_preferred"),
        ([server("a", " ", preferred=True)], "servers[0].dedup_preferred"),
        ([server("a", 5)], "servers[0].dedup_key"),
        ([server("a", "k", preferred="yes")], "servers[0].dedup_preferred"),
        ([{"dedup_key": "k"}], "servers[0].id"),
        ([None], "servers[0].id"),
    ],
)
def test_contradictions_and_wrong_types_are_errors(servers: list[Any], path: str) -> None:
    """Two marks in a group, a mark without a key, a field of a wrong type: one error that names the place."""
    with pytest.raises(InvalidValueError) as caught:
        dedupe_toolsets(servers)
    assert caught.value.path == path


def test_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The library leaves the terminal alone."""
    dedupe_toolsets([server("a", "k"), server("b", "k")])
    assert capsys.readouterr() == ("", "")
