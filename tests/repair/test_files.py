import os
import socket
from pathlib import Path

import pytest

from latchguard.repair.errors import (
    LostRaceError,
    SourceNotFoundError,
    SourceRefusedError,
    SourceTooLargeError,
    escape,
)
from latchguard.repair.files import file_digest, find_files, is_leftover, open_file, read_file
from latchguard.repair.osops import Handle
from latchguard.repair.plans import digest

RUN = "20261130-120000-0123abcd"


def touch(path: Path, raw: bytes = b"{}") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    return path


def names(directory: Path, *sources: str) -> list[str]:
    """Give the files found, relative to *directory*."""
    return [os.path.relpath(source.path, directory) for source in find_files(sources)]


def test_a_directory_is_walked_in_the_order_of_the_names_bytes(tmp_path: Path) -> None:
    """Files and directories interleave by name; bytes that are no text are names too."""
    for name in ("b.json", "a/z.json", "a/B.json", "é.json", "c/d/e.json"):
        touch(tmp_path / name)
    touch(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.json")))
    found = names(tmp_path, str(tmp_path))
    assert found == ["a/B.json", "a/z.json", "b.json", "c/d/e.json", "é.json", "\udcff.json"]


def test_links_to_directories_are_not_followed(tmp_path: Path) -> None:
    """A loop of links ends: the link itself is a source, which is refused when it is opened."""
    touch(tmp_path / "top/a.json")
    (tmp_path / "top/loop").symlink_to(tmp_path / "top")
    assert names(tmp_path, str(tmp_path / "top")) == ["top/a.json", "top/loop"]


def test_what_a_repair_leaves_is_no_source(tmp_path: Path) -> None:
    """Copies, replacements and runs are passed over in directories and globs; a copy that is named is refused."""
    touch(tmp_path / "a.json")
    backup = touch(tmp_path / f"a.json.latchguard-{RUN}")
    touch(tmp_path / f"a.json.latchguard-{RUN}.new")
    touch(tmp_path / RUN / "journal.jsonl")
    assert names(tmp_path, str(tmp_path)) == ["a.json"]
    assert names(tmp_path, str(tmp_path / "*.*")) == ["a.json"]
    with pytest.raises(SourceRefusedError), open_file(str(backup)):
        pass


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"a.latchguard-{RUN}", True),
        (f"a.latchguard-{RUN}.new", True),
        (f"a.latchguard-{RUN}.json", False),
        (f"a.latchguard-{RUN}\n", False),
        ("a.latchguard-notes", False),
    ],
)
def test_a_leftover_is_told_by_its_name(name: str, *, expected: bool) -> None:
    """Only the very names that a run gives count."""
    assert is_leftover(name) is expected


def test_a_path_that_is_named_twice_comes_once(tmp_path: Path) -> None:
    """However it is spelled."""
    path = touch(tmp_path / "a.json")
    assert names(tmp_path, str(path), f"{tmp_path}/./a.json", str(tmp_path), f"{tmp_path}/*.json") == ["a.json"]


def test_a_name_with_glob_characters_that_exists_is_a_path(tmp_path: Path) -> None:
    """`[1].json` is a file, if it is there."""
    touch(tmp_path / "[1].json")
    touch(tmp_path / "1.json")
    assert names(tmp_path, str(tmp_path / "[1].json")) == ["[1].json"]


def test_a_glob_without_a_match_is_an_error(tmp_path: Path) -> None:
    """Nothing found is not nothing wrong."""
    (found,) = find_files([str(tmp_path / "*.json")])
    assert isinstance(found.error, SourceNotFoundError)
    assert found.error.source == found.path == str(tmp_path / "*.json")


def test_only_regular_files_with_one_name_are_opened(tmp_path: Path) -> None:
    """Links, FIFOs, sockets, devices, directories and hard links are refused, by what they are; nothing blocks."""
    plain = touch(tmp_path / "plain")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(plain)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    touch(tmp_path / "first")
    os.link(tmp_path / "first", tmp_path / "second")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        found = {}
        for path in (*sorted(tmp_path.iterdir()), Path("/dev/null"), tmp_path):
            try:
                with open_file(str(path)) as handle:
                    found[path.name] = f"open {handle.path == str(path)}"
            except SourceRefusedError as error:
                found[path.name] = error.found
    assert found == {
        "plain": "open True",
        "fifo": "a FIFO",
        "link": "a symbolic link",
        "dangling": "a symbolic link",
        "first": "one with 2 names (hard links)",
        "second": "one with 2 names (hard links)",
        "socket": "a socket",
        "null": "a device",
        tmp_path.name: "a directory",
    }


def test_a_file_over_the_limit_is_not_read(tmp_path: Path) -> None:
    """The limit counts bytes as they lie on the disk; the limit itself is within."""
    path = touch(tmp_path / "a", b"12345")
    with open_file(str(path)) as handle:
        assert read_file(handle, 5).raw == b"12345"
    with open_file(str(path)) as handle, pytest.raises(SourceTooLargeError) as caught:
        read_file(handle, 4)
    assert (caught.value.limit, caught.value.found) == (4, 5)


def test_a_file_that_grows_while_it_is_read_is_a_lost_race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of an old and half of a new session is no session."""
    path = touch(tmp_path / "a", b"12345")

    def read_and_grow(handle: Handle, size_bytes: int) -> bytes:
        raw = path.read_bytes()
        path.write_bytes(raw + b"6")
        return raw

    monkeypatch.setattr("latchguard.repair.osops.read", read_and_grow)
    with open_file(str(path)) as handle, pytest.raises(LostRaceError):
        read_file(handle, 100)


def test_a_digest_is_of_the_file_itself(tmp_path: Path) -> None:
    """Nothing is hashed through a link, and a missing file has no digest."""
    path = touch(tmp_path / "a", b"x" * 3_000_000)
    (tmp_path / "link").symlink_to(path)
    assert file_digest(str(path)) == digest(b"x" * 3_000_000)
    assert file_digest(str(tmp_path / "link")) is None
    assert file_digest(str(tmp_path / "nowhere")) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain é 中", "plain é 中"),
        ("a\x1b[31m\n\t", "a\\x1b[31m\\n\\t"),
        ("\u202egnp\u2028", "\\u202egnp\\u2028"),
        ("\udcff", "\\udcff"),
    ],
)
def test_what_is_not_printable_is_escaped(text: str, expected: str) -> None:
    """Controls, bidi marks, line ends and lone halves cannot reach a terminal."""
    assert escape(text) == expected
