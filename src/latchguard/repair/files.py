"""Sources that are files: which ones a command line names, and how their bytes are read without being fooled.

1. A source is a path, a glob or a directory; directories are walked to the end, links in them are not followed.
2. The order is that of the names' bytes; a path that is named twice is read once.
3. Only regular files with one name are read: a link, a FIFO, a device, a file with a second hard link are refused.
4. Copies and replacements that a repair leaves beside its files (`.latchguard-<run>`, `.new`), and the directories of
   runs, are never sources.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Final

from attrs import frozen

from latchguard.core.errors import LatchguardError
from latchguard.repair import osops
from latchguard.repair.errors import (
    LostRaceError,
    SourceNotFoundError,
    SourceRefusedError,
    SourceTooLargeError,
)

__all__ = [
    "RUN_NAME",
    "FileBytes",
    "FileSource",
    "file_digest",
    "find_files",
    "is_leftover",
    "open_file",
    "read_file",
    "same_file",
]

# A run's name, as it stands in the names of the copies: when it began (UTC), and four random bytes.
RUN_NAME: Final = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{8}", re.ASCII)
_CHUNK: Final = 2**20
_LEFTOVER: Final = re.compile(r"\.latchguard-(?:" + RUN_NAME.pattern + r"(?:\.new)?|report)\Z", re.ASCII)


@frozen
class FileSource:
    """A file to look at.

    Args:
        path: as named, or joined from what was named.
        named: whether the command line named the file itself, or only a directory it lies in.
        error: why there is none: nothing matches, or a directory cannot be listed.
    """

    path: str
    named: bool
    error: LatchguardError | None = None


@frozen
class FileBytes:
    """The bytes of a file, and the status it had when they were read."""

    raw: bytes
    status: os.stat_result


def is_leftover(path: str) -> bool:
    """Say whether *path* is named like a copy or a replacement that a repair made."""
    return _LEFTOVER.search(path) is not None


def find_files(names: Iterable[str]) -> Iterator[FileSource]:
    """Give the files that *names* (paths, globs, directories) mean, in order; with an error where a name means none.

    Guarantees:
        Lazy: one directory's names are held at a time per level. Each path comes once.
    """
    names = list(names)
    if len(names) == 1 and os.path.isdir(names[0]):  # nothing comes twice, so nothing has to be remembered
        yield from _walk(names[0])
        return
    seen: set[str] = set()
    for name in names:
        for found in _expand(name):
            if (key := os.path.abspath(found.path)) not in seen:
                seen.add(key)
                yield found


def _expand(name: str) -> Iterator[FileSource]:
    if os.path.isdir(name):
        yield from _walk(name)
    elif os.path.lexists(name) or not glob.has_magic(name):
        yield FileSource(name, named=True)
    else:
        matches = sorted(glob.iglob(name, recursive=True), key=os.fsencode)
        if not matches:
            yield FileSource(name, named=True, error=SourceNotFoundError(name, "a path or a glob with a match"))
        for match in matches:
            if os.path.isdir(match) and not os.path.islink(match):
                yield from _walk(match)
            elif not is_leftover(match):
                yield FileSource(match, named=True)


def _walk(top: str) -> Iterator[FileSource]:
    """Give what lies in *top*, depth first."""
    levels = [_list(top)]
    while levels:
        found = next(levels[-1], None)
        if isinstance(found, str):
            levels.append(_list(found))
        elif found is not None:
            yield found
        else:
            levels.pop()


def _list(path: str) -> Iterator[FileSource | str]:
    """Give the files of one directory, and the paths of the directories in it."""
    try:
        names, directories = osops.directory_entries(path)
    except LatchguardError as error:
        yield FileSource(path, named=True, error=error)
        return
    for name in names:
        if not _is_ours(name):
            below = os.path.join(path, name)
            yield below if name in directories else FileSource(below, named=False)


def _is_ours(name: str) -> bool:
    return is_leftover(name) or RUN_NAME.fullmatch(name) is not None


@contextmanager
def open_file(path: str) -> Iterator[osops.Handle]:
    """Open the regular file at *path*.

    Raises:
        SourceNotFoundError: nothing is there.
        SourceRefusedError: what is there is a link, no regular file, has a second name, or is a repair's leftover.
        FileSystemError: it cannot be opened.
    """
    if is_leftover(path):
        raise SourceRefusedError(path, "the copy that a repair keeps")
    with osops.opened(path) as handle:
        found = osops.status(handle)
        if not stat.S_ISREG(found.st_mode):
            raise SourceRefusedError(path, osops.path_kind(path) or "nothing")
        if found.st_nlink > 1:
            raise SourceRefusedError(path, f"one with {found.st_nlink} names (hard links)")
        yield handle


def read_file(handle: osops.Handle, limit_bytes: int) -> FileBytes:
    """Read the whole file, if it has at most *limit_bytes*.

    Raises:
        SourceTooLargeError: it is larger.
        LostRaceError: it changed while it was read.
        FileSystemError: it cannot be read.
    """
    before = osops.status(handle)
    if before.st_size > limit_bytes:
        raise SourceTooLargeError(handle.path, limit_bytes, before.st_size)
    raw = osops.read(handle, before.st_size + 1)
    after = osops.status(handle)
    if len(raw) != before.st_size or not same_file(before, after):
        raise LostRaceError(handle.path, "it changed while it was read")
    return FileBytes(raw, before)


def same_file(old: os.stat_result, new: os.stat_result) -> bool:
    """Say whether two states can be of one file that nobody wrote to in between."""
    return (old.st_dev, old.st_ino, old.st_size, old.st_mtime_ns) == (
        new.st_dev,
        new.st_ino,
        new.st_size,
        new.st_mtime_ns,
    )


def file_digest(path: str) -> str | None:
    """Give the SHA-256 of the regular file at *path* itself; None where there is none, or it has a second name."""
    try:
        with osops.opened(path) as handle:
            found = osops.status(handle)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
                return None
            hashed = sha256()
            while piece := osops.read(handle, _CHUNK):
                hashed.update(piece)
            return hashed.hexdigest()
    except (SourceNotFoundError, SourceRefusedError):
        return None
