"""The one place where repair calls the operating system."""

import ast
import errno
import os
from pathlib import Path

import pytest

import latchguard.repair
from latchguard.repair import osops
from latchguard.repair.errors import FileSystemError, SourceBusyError

MODULES = sorted(path for path in Path(latchguard.repair.__file__).parent.glob("*.py") if path.name != "osops.py")
# Names and values alone; `path` looks, and never opens.
HARMLESS = {"environ", "fsdecode", "fsencode", "path", "stat_result"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_no_other_module_opens_or_changes_files(path: Path) -> None:
    """So that the tests which kill and fail every operation see every operation."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
            assert node.attr in HARMLESS
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "open"
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {node.module} if isinstance(node, ast.ImportFrom) else {name.name for name in node.names}
            assert names & {"shutil", "pathlib", "fcntl", "io", "tempfile"} == set()


def test_a_failure_says_what_could_not_be_done_to_what(tmp_path: Path) -> None:
    """Operation, path, and the system's reason."""
    with pytest.raises(FileSystemError) as caught, osops.created(str(tmp_path), 0o600):
        pass
    error = caught.value
    assert (error.operation, error.path, error.errno) == ("create", str(tmp_path), errno.EEXIST)
    assert str(error) == f"{tmp_path}: cannot create: {os.strerror(errno.EEXIST)}"


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    """The second is busy, and does not wait; once the first is closed it has it."""
    path = str(tmp_path / "lock")
    with osops.append(path) as first, osops.append(path) as second:
        osops.lock(first)
        with pytest.raises(SourceBusyError):
            osops.lock(second)
    with osops.append(path) as third:
        osops.lock(third)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.EBADF])
def test_where_there_are_no_locks_a_repair_goes_on_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A network file system may know none; what is checked before the rename holds all the same."""

    def refuse(*_: object) -> None:
        raise OSError(number, "no locks")

    monkeypatch.setattr("fcntl.flock", refuse)
    with osops.append(str(tmp_path / "lock")) as handle:
        osops.lock(handle)


def test_attributes_are_kept(tmp_path: Path) -> None:
    """Mode and extended attributes of the source are those of the target."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"")
    source.chmod(0o604)
    try:
        os.setxattr(source, "user.tag", b"kept")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    with osops.opened(str(source)) as old, osops.created(str(target), 0o600) as new:
        osops.copy_attributes(old, new)
    assert target.stat().st_mode & 0o7777 == 0o604
    assert os.getxattr(target, "user.tag") == b"kept"


def test_a_short_write_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may take less than it was given."""
    write = os.write
    monkeypatch.setattr("os.write", lambda number, raw: write(number, raw[:3]))
    with osops.created(str(tmp_path / "file"), 0o600) as handle:
        osops.write(handle, b"0123456789")
    assert (tmp_path / "file").read_bytes() == b"0123456789"


def test_a_directory_is_made_with_its_parents_for_its_owner_alone(tmp_path: Path) -> None:
    """And again without complaint; a file in its place is a failure."""
    for _ in range(2):
        osops.make_directory(str(tmp_path / "a/b/c"))
    assert {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")} == {0o700}
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileSystemError):
        osops.make_directory(str(tmp_path / "file"))
