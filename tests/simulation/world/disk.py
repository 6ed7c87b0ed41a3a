"""`SimulatedDisk`: `Files` in memory that lose unsynced changes at a power cut, and fail on request.

After a power cut:

- of a file, any subset of the unsynced writes survives, each possibly torn;
- of a directory, a prefix of the changes since its last sync survives, because a journaling file system keeps their
  order; a folder's name survives together with its contents;
- a file is as long as its surviving writes need, or longer. The excess is zeros, as on a file system that writes the
  size first.
"""

from __future__ import annotations

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
    """`changes` since the last sync: names that were set to a file or a folder, or removed (None)."""

    names: dict[str, Inode | Folder] = field(default_factory=dict)
    synced: dict[str, Inode | Folder] = field(default_factory=dict)
    changes: list[dict[str, Inode | Folder | None]] = field(default_factory=list)

    def after_crash(self, chance: random.Random) -> dict[str, Inode | Folder]:
        """Draw the names that survive."""
        names = dict(self.synced)
        for change in self.changes[: chance.randint(0, len(self.changes))]:
            for name, thing in change.items():
                if thing is None:
                    names.pop(name, None)
                else:
                    names[name] = thing
        return names


class SimulatedDisk(Files):
    """The folders of the first created path count as durable: a power cut does not remove them."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        # All folders by path; `roots` have no parent.
        self.folders: dict[str, Folder] = {}
        self.roots: set[str] = set()
        self.descriptors: dict[int, Inode] = {}
        self.next_fd = 1000
        self.fail_writes: int | None = None  # an errno
        self.fail_syncs: int | None = None
        self.fail_reads: int | None = None
        self.writes_until_failure = 0
        self.crash_after: int | None = None  # raises Crash after that many mutating calls
        self.crashed = False

    # -- faults ----------------------------------------------------------------------------------------------------

    def _mutate(self) -> None:
        if self.crash_after is not None:
            if self.crash_after == 0:
                self.crashed = True
                raise Crash
            self.crash_after -= 1

    def revive(self) -> SimulatedDisk:
        """The disk after the process was killed: the operating system keeps all writes."""
        self.crash_after, self.crashed = None, False
        return self

    def crash(self) -> SimulatedDisk:
        """Return the disk as the next start finds it after a power cut."""
        after = SimulatedDisk(self.random.randrange(1 << 30))
        after.roots = set(self.roots)
        survivors: dict[int, Inode] = {}
        pending = [(path, self.folders[path]) for path in sorted(self.roots)]
        for path, folder in pending:
            kept = after.folders.setdefault(path, Folder())
            for name, thing in folder.after_crash(self.random).items():
                if isinstance(thing, Folder):
                    pending.append((f"{path}/{name}", thing))
                    kept.names[name] = after.folders[f"{path}/{name}"] = Folder()
                else:
                    if id(thing) not in survivors:
                        survivors[id(thing)] = self._after_crash(thing)
                    kept.names[name] = survivors[id(thing)]
            kept.synced = dict(kept.names)
        return after

    def _after_crash(self, inode: Inode) -> Inode:
        data = bytearray(inode.synced)
        style, size_survives = self.random.random(), self.random.random() < 0.2
        for position, change in inode.changes:
            if style < 0.3 or (style < 0.6 and self.random.random() < 0.5):
                if size_survives and change is not None:
                    _resize(data, max(len(data), position + len(change)))
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

    # -- Files -----------------------------------------------------------------------------------------------------

    def _folder(self, path: str) -> tuple[Folder, str]:
        directory, _, name = path.rpartition("/")
        folder = self.folders.get(directory)
        if folder is None:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return folder, name

    def _inode(self, path: str) -> Inode:
        folder, name = self._folder(path)
        inode = folder.names.get(name)
        if not isinstance(inode, Inode):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return inode

    def _set(self, folder: Folder, change: dict[str, Inode | Folder | None]) -> None:
        self._mutate()
        folder.changes.append(change)
        for name, thing in change.items():
            if thing is None:
                folder.names.pop(name, None)
            else:
                folder.names[name] = thing

    def open(self, path: str, *, create: bool = False, truncate: bool = False, read_only: bool = False) -> int:
        folder, name = self._folder(path)
        if name not in folder.names:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._set(folder, {name: Inode()})
        inode = self._inode(path)
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

    def allocate(self, fd: int, position: int, size: int) -> None:
        self._mutate()  # allocated space has no content that could be lost

    def truncate(self, fd: int, size: int) -> None:
        self._mutate()
        inode = self.descriptors[fd]
        _resize(inode.data, size)
        inode.changes.append((size, None))

    def size(self, path: str) -> int:
        return len(self._inode(path).data)

    def length(self, fd: int) -> int:
        return len(self.descriptors[fd].data)

    def modified_ms(self, path: str) -> int:
        self._inode(path)
        return 0

    def exists(self, path: str) -> bool:
        directory, _, name = path.rpartition("/")
        return path in self.folders or (directory in self.folders and name in self.folders[directory].names)

    def is_directory(self, path: str) -> bool:
        return path in self.folders

    def list(self, directory: str) -> list[str]:
        return sorted(self.folders[directory].names)

    def rename(self, old: str, new: str) -> None:
        folder, name = self._folder(old)
        target, new_name = self._folder(new)
        assert target is folder
        self._set(folder, {new_name: folder.names[name], name: None})
        for path in [path for path in self.folders if path == old or path.startswith(old + "/")]:
            self.folders[new + path[len(old) :]] = self.folders.pop(path)

    def unlink(self, path: str) -> None:
        directory, _, name = path.rpartition("/")
        folder = self.folders.get(directory)
        if folder is not None and name in folder.names:
            self._set(folder, {name: None})

    def make_directory(self, path: str) -> None:
        parts = path.split("/")
        was_there = "/".join(parts[:2]) not in self.folders
        for i in range(2, len(parts) + 1):
            made, folder = "/".join(parts[:i]), Folder()
            if made in self.folders:
                continue
            if i == 2:
                self.roots.add(made)
            else:
                parent, name = self._folder(made)
                if was_there:
                    parent.names[name] = parent.synced[name] = folder
                else:
                    self._set(parent, {name: folder})
            self.folders[made] = folder

    def remove_directory(self, path: str) -> None:
        folder = self.folders.get(path)
        if folder is None or folder.names:
            raise OSError(errno.ENOENT if folder is None else errno.ENOTEMPTY, "simulated", path)
        self.remove_tree(path)

    def remove_tree(self, path: str) -> None:
        if path in self.folders:
            folder, name = self._folder(path)
            self._set(folder, {name: None})
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
    """The process ends at this call."""


def _resize(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))
