"""`SimulatedDisk`: a `Files` in memory that forgets, at a crash, what was not synced, and fails when it is told to.

Of a file, any subset of the unsynced writes survives, the last one possibly torn; of a directory, a prefix of the
changes since its last sync (a journaling file system keeps their order). Sizes follow the writes that survive.
"""

import errno
import random
from dataclasses import dataclass, field

from ottla.log.files import Files


@dataclass
class Inode:
    """`changes` since the last sync: (position, bytes) for a write, (size, None) for a truncation."""

    data: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    changes: list[tuple[int, bytes | None]] = field(default_factory=list)


@dataclass
class Folder:
    """`changes` since the last sync: names that were set to an inode, or taken away."""

    names: dict[str, Inode] = field(default_factory=dict)
    synced: dict[str, Inode] = field(default_factory=dict)
    changes: list[dict[str, Inode | None]] = field(default_factory=list)


class SimulatedDisk(Files):
    """Folders are made durable at once; what is in them is not."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.folders: dict[str, Folder] = {}
        self.descriptors: dict[int, Inode] = {}
        self.next_fd = 1000
        self.fail_writes: int | None = None  # an errno
        self.fail_syncs: int | None = None
        self.fail_reads: int | None = None
        self.writes_until_failure = 0
        self.crash_after: int | None = None  # raises Crash at that many mutating calls from now

    # Failing

    def _mutate(self) -> None:
        if self.crash_after is not None:
            if self.crash_after == 0:
                raise Crash
            self.crash_after -= 1

    def crash(self) -> "SimulatedDisk":
        """The disk as the next start finds it."""
        after = SimulatedDisk(self.random.randrange(1 << 30))
        survivors: dict[int, Inode] = {}
        for path, folder in self.folders.items():
            names = dict(folder.synced)
            for change in folder.changes[: self.random.randint(0, len(folder.changes))]:
                for name, inode in change.items():
                    if inode is None:
                        names.pop(name, None)
                    else:
                        names[name] = inode
            kept = {}
            for name, inode in names.items():
                if id(inode) not in survivors:
                    survivors[id(inode)] = self._after_crash(inode)
                kept[name] = survivors[id(inode)]
            after.folders[path] = Folder(dict(kept), dict(kept))
        return after

    def _after_crash(self, inode: Inode) -> Inode:
        data = bytearray(inode.synced)
        style = self.random.random()
        for position, change in inode.changes:
            if style < 0.3 or (style < 0.6 and self.random.random() < 0.5):
                continue
            if change is None:
                _resize(data, position)
                continue
            if self.random.random() < 0.2:
                change = change[: self.random.randint(0, len(change))]
            if change:
                _resize(data, max(len(data), position + len(change)))
                data[position : position + len(change)] = change
        return Inode(data, bytes(data))

    # Files

    def _folder(self, path: str) -> tuple[Folder, str]:
        directory, _, name = path.rpartition("/")
        folder = self.folders.get(directory)
        if folder is None:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return folder, name

    def _inode(self, path: str) -> Inode:
        folder, name = self._folder(path)
        if name not in folder.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return folder.names[name]

    def _set(self, folder: Folder, change: dict[str, Inode | None]) -> None:
        self._mutate()
        folder.changes.append(change)
        for name, inode in change.items():
            if inode is None:
                folder.names.pop(name, None)
            else:
                folder.names[name] = inode

    def open(self, path: str, *, create: bool = False, truncate: bool = False, read_only: bool = False) -> int:
        folder, name = self._folder(path)
        if name not in folder.names:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._set(folder, {name: Inode()})
        inode = folder.names[name]
        self.next_fd += 1
        self.descriptors[self.next_fd] = inode
        if truncate and inode.data:
            self.truncate(self.next_fd, 0)
        return self.next_fd

    def close(self, fd: int) -> None:
        del self.descriptors[fd]

    def dup(self, fd: int) -> int:
        self.next_fd += 1
        self.descriptors[self.next_fd] = self.descriptors[fd]
        return self.next_fd

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> None:
        self._mutate()
        inode = self.descriptors[fd]
        content = bytes(data)
        if self.fail_writes is not None:
            if self.writes_until_failure == 0:
                self._write(inode, content[: len(content) // 2], position)
                raise OSError(self.fail_writes, "simulated")
            self.writes_until_failure -= 1
        self._write(inode, content, position)

    def _write(self, inode: Inode, content: bytes, position: int) -> None:
        _resize(inode.data, max(len(inode.data), position + len(content)))
        inode.data[position : position + len(content)] = content
        inode.changes.append((position, content))

    def pread(self, fd: int, size: int, position: int) -> bytes:
        if self.fail_reads is not None:
            raise OSError(self.fail_reads, "simulated")
        return bytes(self.descriptors[fd].data[position : position + size])

    def pread_large(self, fd: int, size: int, position: int) -> bytes:
        return self.pread(fd, size, position)

    def fsync(self, fd: int) -> None:
        self._mutate()
        if self.fail_syncs is not None:
            raise OSError(self.fail_syncs, "simulated")
        inode = self.descriptors[fd]
        inode.synced = bytes(inode.data)
        inode.changes.clear()

    def truncate(self, fd: int, size: int) -> None:
        self._mutate()
        inode = self.descriptors[fd]
        _resize(inode.data, size)
        inode.changes.append((size, None))

    def size(self, path: str) -> int:
        return len(self._inode(path).data)

    def modified_ms(self, path: str) -> int:
        self._inode(path)
        return 0

    def exists(self, path: str) -> bool:
        if path in self.folders:
            return True
        directory, _, name = path.rpartition("/")
        return directory in self.folders and name in self.folders[directory].names

    def is_directory(self, path: str) -> bool:
        return path in self.folders

    def list(self, directory: str) -> list[str]:
        below = {
            path[len(directory) + 1 :].partition("/")[0] for path in self.folders if path.startswith(directory + "/")
        }
        return sorted(below | set(self.folders[directory].names))

    def rename(self, old: str, new: str) -> None:
        if old in self.folders:
            self._mutate()
            for path in [p for p in self.folders if p == old or p.startswith(old + "/")]:
                self.folders[new + path[len(old) :]] = self.folders.pop(path)
            return
        folder, name = self._folder(old)
        target, new_name = self._folder(new)
        assert target is folder
        self._set(folder, {new_name: self._inode(old), name: None})

    def unlink(self, path: str) -> None:
        folder, name = self._folder(path)
        if name in folder.names:
            self._set(folder, {name: None})

    def make_directory(self, path: str) -> None:
        parts = path.split("/")
        for i in range(2, len(parts) + 1):
            self.folders.setdefault("/".join(parts[:i]), Folder())

    def remove_tree(self, path: str) -> None:
        for key in [p for p in self.folders if p == path or p.startswith(path + "/")]:
            del self.folders[key]

    def fsync_directory(self, path: str) -> None:
        self._mutate()
        if self.fail_syncs is not None:
            raise OSError(self.fail_syncs, "simulated")
        if path in self.folders:
            folder = self.folders[path]
            folder.synced = dict(folder.names)
            folder.changes.clear()

    def space(self, path: str) -> tuple[int, int]:
        return 1 << 40, 1 << 39


class Crash(Exception):
    """The process stops here."""


def _resize(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))
