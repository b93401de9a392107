"""Every file operation of repair, undo and runs, each a thin function: the one place where they can be made to fail.

1. No other module of `latchguard.repair` calls the operating system. Tests replace `os` here and kill or fail call n.
2. An operation that fails raises `FileSystemError`, which says what could not be done to which path.
3. Nothing here follows a link at the end of a path, and nothing blocks.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from attrs import frozen

from latchguard.repair.errors import FileSystemError, SourceBusyError, SourceNotFoundError, SourceRefusedError

__all__ = [
    "Handle",
    "append",
    "change_times",
    "copy_attributes",
    "created",
    "directory_entries",
    "lock",
    "make_directory",
    "opened",
    "path_kind",
    "read",
    "remove_directory",
    "rename",
    "status",
    "sync",
    "sync_directory",
    "truncate",
    "unlink",
    "write",
]

_CHUNK: Final = 2**24
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR})
# A network file system may know no locks, or none (EBADF) on a file that is open for reading.
_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF})
# What a replacement must not lose; the rest (security.*, trusted.*) is the system's to set.
_ATTRIBUTES: Final = ("user.", "system.posix_acl_access")

_KINDS: Final = {
    stat.S_IFREG: "a regular file",
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@frozen
class Handle:
    """An open file and the path it was opened by."""

    number: int
    path: str


class _doing:  # noqa: N801  # a context manager, as `contextmanager` would make it at three times the cost
    __slots__ = ("_operation", "_path")

    def __init__(self, operation: str, path: str) -> None:
        self._operation, self._path = operation, path

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError):
            raise FileSystemError(
                self._operation, self._path, error.errno or 0, error.strerror or str(error)
            ) from error


@contextmanager
def opened(path: str) -> Iterator[Handle]:
    """Open what is at *path* for reading, without following a link and without waiting.

    Raises:
        SourceNotFoundError: nothing is there.
        SourceRefusedError: a link or a socket is there.
        FileSystemError: it cannot be opened.
    """
    try:
        number = os.open(path, _READ)
    except OSError as error:
        if error.errno in _ABSENT:
            raise SourceNotFoundError(path, "a file") from error
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO):
            raise SourceRefusedError(path, path_kind(path) or "a link") from error
        raise FileSystemError("open", path, error.errno or 0, error.strerror or str(error)) from error
    handle = Handle(number, path)
    try:
        yield handle
    finally:
        _close(handle)


@contextmanager
def created(path: str, mode: int) -> Iterator[Handle]:
    """Create *path*, which must not exist, and open it for writing."""
    with _doing("create", path):
        handle = Handle(os.open(path, _CREATE, mode), path)
    try:
        yield handle
    finally:
        _close(handle)


@contextmanager
def append(path: str) -> Iterator[Handle]:
    """Open *path* for appending and reading; create it, for its owner alone, where it is not there."""
    with _doing("open", path):
        handle = Handle(os.open(path, _APPEND, 0o600), path)
    try:
        yield handle
    finally:
        _close(handle)


def _close(handle: Handle) -> None:
    with _doing("close", handle.path):
        os.close(handle.number)


def lock(handle: Handle) -> None:
    """Take the file's exclusive advisory lock, or raise `SourceBusyError`. Where there are no locks, go on without."""
    try:
        fcntl.flock(handle.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno == errno.EWOULDBLOCK:
            raise SourceBusyError(handle.path) from error
        if error.errno not in _NO_LOCKS:
            raise FileSystemError("lock", handle.path, error.errno or 0, error.strerror or str(error)) from error


def status(handle: Handle) -> os.stat_result:
    """Give the status of an open file."""
    with _doing("stat", handle.path):
        return os.fstat(handle.number)


def read(handle: Handle, size_bytes: int) -> bytes:
    """Read up to *size_bytes* from where the handle stands; less at the end of the file only."""
    pieces: list[bytes] = []
    with _doing("read", handle.path):
        while size_bytes > 0 and (piece := os.read(handle.number, min(size_bytes, _CHUNK))):
            pieces.append(piece)
            size_bytes -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def write(handle: Handle, raw: bytes) -> None:
    """Write all of *raw*."""
    view = memoryview(raw)
    with _doing("write", handle.path):
        while view:
            view = view[os.write(handle.number, view) :]


def truncate(handle: Handle, size_bytes: int) -> None:
    """Cut the file to *size_bytes*."""
    with _doing("truncate", handle.path):
        os.ftruncate(handle.number, size_bytes)


def copy_attributes(source: Handle, target: Handle) -> None:
    """Give *target* the owner, the mode and the extended attributes of *source*."""
    found = status(source)
    with _doing("set the owner and mode of", target.path):
        made = os.fstat(target.number)
        if (made.st_uid, made.st_gid) != (found.st_uid, found.st_gid):
            os.fchown(target.number, found.st_uid, found.st_gid)
        for name in _attribute_names(source):
            os.setxattr(target.number, name, os.getxattr(source.number, name))
        os.fchmod(target.number, stat.S_IMODE(found.st_mode))


def _attribute_names(handle: Handle) -> Sequence[str]:
    if not hasattr(os, "listxattr"):
        return ()
    try:
        names = os.listxattr(handle.number)
    except OSError as error:
        if error.errno == errno.ENOTSUP:  # a file system without attributes has none to lose
            return ()
        raise
    return [name for name in names if name.startswith(_ATTRIBUTES)]


def change_times(handle: Handle, accessed_ns: int, modified_ns: int) -> None:
    """Set the times of an open file."""
    with _doing("set the times of", handle.path):
        os.utime(handle.number, ns=(accessed_ns, modified_ns))


def sync(handle: Handle) -> None:
    """Wait until the file is on the disk."""
    with _doing("sync", handle.path):
        os.fsync(handle.number)


def sync_directory(path: str) -> None:
    """Wait until the names in a directory are on the disk."""
    with _doing("sync the directory", path):
        number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def rename(old: str, new: str) -> None:
    """Give the file at *old* the name *new*, in place of what bears it, in one step."""
    with _doing("rename its replacement to it", new):
        os.rename(old, new)


def unlink(path: str) -> None:
    """Remove the file at *path*; nothing happens where none is."""
    try:
        os.unlink(path)
    except OSError as error:
        if error.errno not in _ABSENT:
            raise FileSystemError("remove", path, error.errno or 0, error.strerror or str(error)) from error


def make_directory(path: str) -> None:
    """Make a directory for its owner alone, and its parents; nothing happens where it is one already."""
    path = os.path.abspath(path)
    with _doing("make the directory", path):
        try:
            os.mkdir(path, 0o700)
        except FileNotFoundError:
            make_directory(os.path.dirname(path))
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
            return
    sync_directory(os.path.dirname(path))


def remove_directory(path: str) -> None:
    """Remove an empty directory."""
    with _doing("remove the directory", path):
        os.rmdir(path)


def directory_entries(path: str) -> tuple[list[str], set[str]]:
    """Give the names in a directory, sorted by their bytes, and those of directories among them; a link is none."""
    names: list[str] = []
    directories: set[str] = set()
    with _doing("list the directory", path), os.scandir(path) as found:
        for entry in found:
            names.append(entry.name)
            if entry.is_dir(follow_symlinks=False):
                directories.add(entry.name)
    return sorted(names, key=os.fsencode), directories


def path_kind(path: str) -> str | None:
    """Say in words what is at *path* itself, not behind a link; None where nothing is."""
    try:
        mode = os.lstat(path).st_mode
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise FileSystemError("stat", path, error.errno or 0, error.strerror or str(error)) from error
    return _KINDS.get(stat.S_IFMT(mode), "something that is no file")
