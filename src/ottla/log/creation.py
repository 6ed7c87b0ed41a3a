"""Removes what a start created in its log directories, if the start is refused: it leaves no new files behind.

Only named files that did not exist before are removed, then the directories that did not exist before, if they are
empty. A directory that another process holds is skipped: that process may have created the same files.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from ottla.log.files import Files
from ottla.log.storage import LOCK, META_PROPERTIES, DirectoryLock, StorageError


@contextmanager
def removed_if_refused(files: Files, directories: Collection[str], names: Collection[str] = ()) -> Iterator[None]:
    """Remove what the body created, if it raises: `meta.properties`, the lock, the other `names`, and directories.

    The body must release the locks of the directories before it raises.
    """
    parts = [part for name in (META_PROPERTIES, *names, LOCK) for part in (name, f"{name}.tmp")]
    absent = {
        directory: [path for part in parts if not files.exists(path := f"{directory}/{part}")]
        for directory in directories
    }
    missing = {parent for directory in directories for parent in _missing(files, directory)}
    try:
        yield
    except BaseException:
        for directory, paths in absent.items():
            # The error under way says more than one about a directory that cannot be written.
            with suppress(OSError, StorageError):
                _remove(files, directory, paths)
        for parent in sorted(missing, key=len, reverse=True):
            with suppress(OSError):  # it is not empty, or was never created
                files.remove_directory(parent)
        raise


def _missing(files: Files, directory: str) -> list[str]:
    """Return the directory and its parents, as far as they do not exist."""
    missing = []
    path = directory.rstrip("/")
    while path and not files.exists(path):
        missing.append(path)
        path = path.rpartition("/")[0].rstrip("/")
    return missing


def _remove(files: Files, directory: str, paths: list[str]) -> None:
    if not files.is_directory(directory):
        return
    lock = DirectoryLock(directory)
    lock.acquire()
    try:
        for path in paths:
            if files.is_directory(path):
                files.remove_directory(path)
            else:
                files.unlink(path)
    finally:
        lock.release()
