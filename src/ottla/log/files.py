"""All disk access of the log goes through a `Files` object, which tests replace by a failing disk.

Methods are thin: they raise OSError as the system does. Paths are strings (cheaper than `Path` on the hot path).
Callers rely on two guarantees: `pwrite` writes everything or raises; `write_atomically` leaves the old or the new
content in any case, and the new content is durable when it returns.
"""

# The docstring explains why this file uses string paths and system calls.
# ruff: noqa: PTH103, PTH104, PTH106, PTH108, PTH112

import ctypes
import errno
import os
from collections.abc import Callable

from ottla.common.shortage import DESCRIPTOR_SHORTAGES, SyncError
from ottla.log.read_buffers import ReadBuffers
from ottla.records import Buffer

# For smaller reads, the allocator has memory available.
LARGE_READ_BYTES = 128 * 1024
# FALLOC_FL_KEEP_SIZE of linux/falloc.h
_KEEP_SIZE = 1


class Files:
    """The machine's file system."""

    _buffers: ReadBuffers | None = None
    _fallocate: Callable[[int, int, int, int], object] | None = None
    release_descriptor: Callable[[], bool] | None = None
    """Closes a cached descriptor when the process has none left, and returns whether it did. The call is retried."""

    def open(self, path: str, *, create: bool = False, truncate: bool = False, read_only: bool = False) -> int:
        """Open a file and return its descriptor; `create` creates a missing file."""
        flags = os.O_RDONLY if read_only else os.O_RDWR
        if create:
            flags |= os.O_CREAT
        if truncate:
            flags |= os.O_TRUNC
        return self._with_descriptor(lambda: os.open(path, flags | os.O_CLOEXEC, 0o644))

    def _with_descriptor(self, obtain: Callable[[], int]) -> int:
        try:
            return obtain()
        except OSError as error:
            release = self.release_descriptor
            if error.errno not in DESCRIPTOR_SHORTAGES or release is None or not release():
                raise
        return obtain()

    def close(self, fd: int) -> None:
        """Close the descriptor."""
        os.close(fd)

    def dup(self, fd: int) -> int:
        """Duplicate a descriptor, for another thread to sync."""
        return self._with_descriptor(lambda: os.dup(fd))

    def pwrite(self, fd: int, data: Buffer, position: int) -> None:
        """Write all of `data` at `position`."""
        written = os.pwrite(fd, data, position)
        if written != len(data):
            view = memoryview(data)
            while written < len(view):
                written += os.pwrite(fd, view[written:], position + written)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        """Read `size` bytes at `position`; fewer only at the end of the file."""
        data = os.pread(fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        done = len(data)
        while done < size and (data := os.pread(fd, size - done, position + done)):
            parts.append(data)
            done += len(data)
        return b"".join(parts)

    def pread_large(self, fd: int, size: int, position: int) -> Buffer:
        """Like `pread`, but a large result is a view of pooled memory, reused when no view of it is left."""
        if size < LARGE_READ_BYTES:
            return self.pread(fd, size, position)
        if self._buffers is None:
            self._buffers = ReadBuffers()
        view = self._buffers.take(size)
        done = 0
        while done < size and (count := os.preadv(fd, [view[done:]], position + done)):
            done += count
        return view[:done].toreadonly()

    def fsync(self, fd: int) -> None:
        """Make the file's content durable. Raises SyncError; the content may be lost then."""
        try:
            os.fdatasync(fd)
        except OSError as error:
            raise SyncError(error.errno, error.strerror) from error

    def allocate(self, fd: int, position: int, size: int) -> None:
        """Allocate blocks for `size` bytes at `position`, beyond the end; the file's length does not change.

        `truncate` frees the blocks. Raises OSError if there is no space or the file system does not support it.
        """
        if self._fallocate is None:
            self._fallocate = _system_fallocate()
        self._fallocate(fd, _KEEP_SIZE, position, size)

    def fsync_if_there(self, path: str) -> None:
        """Make the content of a file durable if it exists, also if another process wrote it."""
        try:
            fd = self.open(path, read_only=True)
        except FileNotFoundError:
            return
        try:
            self.fsync(fd)
        finally:
            self.close(fd)

    def truncate(self, fd: int, size: int) -> None:
        """Set the file's length to `size`."""
        os.ftruncate(fd, size)

    def size(self, path: str) -> int:
        """Length of a file. Raises FileNotFoundError."""
        return os.stat(path).st_size

    def length(self, fd: int) -> int:
        """Length of an open file."""
        return os.lseek(fd, 0, os.SEEK_END)

    def modified_ms(self, path: str) -> int:
        """Time of the last change of the content, in milliseconds since the epoch."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def exists(self, path: str) -> bool:
        """Whether a file or directory exists."""
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        """Whether the path is a directory."""
        return os.path.isdir(path)

    def list(self, directory: str) -> list[str]:
        """The names in a directory, sorted."""
        return sorted(os.listdir(directory))

    def rename(self, old: str, new: str) -> None:
        """Move a file or directory, replacing a file at `new`."""
        os.rename(old, new)

    def unlink(self, path: str) -> None:
        """Delete a file if it exists."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents if they are missing."""
        os.makedirs(path, exist_ok=True)

    def remove_directory(self, path: str) -> None:
        """Delete an empty directory. Raises OSError if it is not empty."""
        os.rmdir(path)

    def remove_tree(self, path: str) -> None:
        """Delete a directory and its content if it exists."""
        if os.path.isdir(path):
            from shutil import rmtree  # noqa: PLC0415 - takes 4 ms to import, with codecs that a start does not need

            rmtree(path)

    def fsync_directory(self, path: str) -> None:
        """Make creations, renames and removals in the directory durable."""
        fd = self._with_descriptor(lambda: os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        try:
            os.fsync(fd)
        except OSError as error:
            raise SyncError(error.errno, error.strerror) from error
        finally:
            os.close(fd)

    def space(self, path: str) -> tuple[int, int]:
        """Total and usable bytes of the volume that holds `path`."""
        volume = os.statvfs(path)
        return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize

    def read(self, path: str) -> bytes:
        """Read the whole content of a small file."""
        fd = self.open(path, read_only=True)
        try:
            return self.pread(fd, self.size(path), 0)
        finally:
            self.close(fd)

    def write(self, path: str, data: Buffer, *, sync: bool = False) -> None:
        """Replace the content of a file in place, not atomically."""
        fd = self.open(path, create=True, truncate=True)
        try:
            self.pwrite(fd, data, 0)
            if sync:
                self.fsync(fd)
        finally:
            self.close(fd)

    def write_atomically(self, path: str, data: Buffer) -> None:
        """Replace the content of a file durably and atomically: write `<path>.tmp`, sync it, rename it."""
        temporary = path + ".tmp"
        self.write(temporary, data, sync=True)
        self.rename(temporary, path)
        self.fsync_directory(path.rpartition("/")[0] or ".")


def _system_fallocate() -> Callable[[int, int, int, int], object]:
    """The system call: Python's `posix_fallocate` changes the file's length."""
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "fallocate"):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    function = library.fallocate
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)

    def fallocate(fd: int, mode: int, position: int, size: int) -> None:
        if function(fd, mode, position, size):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    return fallocate
