"""Local directories and S3 buckets behind one small interface. Keys are relative to a root and have slashes."""

from __future__ import annotations

import fcntl
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

from ottla.connect.config.definition import Importance, Password, Setting, SettingType
from ottla.connect.errors import ConnectError, RetriableError

T = TypeVar("T")
TEMPORARY: Final = ".ottla-temporary"
"""The end of the name of a file that is not complete. Sources skip such files."""
_TIMEOUTS: Final = {"timeout": "60s", "connect_timeout": "10s"}
_RETRIES: Final = {"max_retries": 3}


class Entry(NamedTuple):
    """A file: its key, its size in bytes and the time of its last change in ms since 1970."""

    key: str
    size: int
    modified_ms: int


class Storage(ABC):
    """A directory of files. Methods raise RetriableError if the storage cannot be reached."""

    root: str
    """The name of the directory, for offsets and messages."""
    is_immutable: bool
    """Whether a file never grows: objects are written at once."""

    @abstractmethod
    def entries(self, prefix: str = "") -> Iterator[Entry]:
        """List all files under a directory, recursively."""

    @abstractmethod
    def entry(self, key: str) -> Entry | None:
        """Return one file, or None if it does not exist."""

    @abstractmethod
    def read(self, key: str, start: int, length: int) -> bytes:
        """Return bytes from a position, fewer only at the end. Raises FileNotFoundError."""

    @abstractmethod
    def write(self, key: str, contents: bytes) -> None:
        """Create or replace a file, so that it has all its bytes on disk or keeps its previous state."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Delete a file if it exists."""

    @abstractmethod
    def move(self, key: str, target: str) -> None:
        """Rename a file; `target` is relative to the root, too."""

    @abstractmethod
    def versioned(self, key: str) -> tuple[bytes, Any] | None:
        """Return a small file with its version for `replace`, or None if it does not exist."""

    @abstractmethod
    def replace(self, key: str, contents: bytes, version: Any) -> bool:
        """Write a small file if it still has this version (None: does not exist). Returns whether it was written."""


class LocalStorage(Storage):
    """A directory of this machine. Power off after `write`, `move` or `replace` returned: nothing is lost."""

    is_immutable = False

    def __init__(self, root: str) -> None:
        self.root = root
        self._root = Path(root)

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        """List all files under a directory, recursively."""
        for directory, names, files in os.walk(self._root / prefix):
            names.sort()
            for name in sorted(files):
                key = str((Path(directory) / name).relative_to(self._root))
                found = self.entry(key)
                if found is not None:
                    yield found

    def entry(self, key: str) -> Entry | None:
        """Return one file, or None if it does not exist."""
        try:
            found = os.stat(self._root / key)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Entry(key, found.st_size, found.st_mtime_ns // 1_000_000)

    def read(self, key: str, start: int, length: int) -> bytes:
        """Return bytes from a position."""
        with open(self._root / key, "rb", buffering=0) as file:
            file.seek(start)
            contents = file.read(length)
        return contents or b""

    def write(self, key: str, contents: bytes) -> None:
        """Write a temporary file, sync it, and rename it."""
        path = self._root / key
        _make_directories(path.parent)
        temporary = path.with_name(f"{path.name}{TEMPORARY}")
        try:
            with open(temporary, "wb") as file:
                file.write(contents)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            # The error of a full disk does not name the file.
            raise OSError(error.errno, error.strerror, str(temporary)) from error
        os.replace(temporary, path)
        _sync_directory(path.parent)

    def delete(self, key: str) -> None:
        """Delete a file if it exists."""
        path = self._root / key
        path.unlink(missing_ok=True)
        _sync_directory(path.parent)

    def move(self, key: str, target: str) -> None:
        """Rename a file and sync both directories."""
        path = self._root / target
        _make_directories(path.parent)
        os.replace(self._root / key, path)
        _sync_directory(path.parent)
        _sync_directory((self._root / key).parent)

    def versioned(self, key: str) -> tuple[bytes, Any] | None:
        """Return a small file; its contents are its version."""
        try:
            contents = (self._root / key).read_bytes()
        except FileNotFoundError:
            return None
        return contents, contents

    def replace(self, key: str, contents: bytes, version: Any) -> bool:
        """Compare and write under a lock."""
        with self._locked(key):
            found = self.versioned(key)
            if (None if found is None else found[1]) != version:
                return False
            self.write(key, contents)
            return True

    @contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        path = self._root / f"{key}.lock"
        _make_directories(path.parent)
        with open(path, "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _make_directories(path: Path) -> None:
    if not path.is_dir():
        _make_directories(path.parent)
        path.mkdir(exist_ok=True)
        _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class ObjectStorage(Storage):
    """A prefix of an S3 bucket. A put is complete or has no effect."""

    is_immutable = True

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        from obstore.store import S3Store  # noqa: PLC0415 - an optional package

        self.root = url
        parts = urlsplit(url)
        prefix = parts.path.strip("/")
        config: dict[str, Any] = dict(options)
        client: Any = {**_TIMEOUTS, "allow_http": config.get("endpoint", "").startswith("http://")}
        store: Any = S3Store
        self._store = store(
            parts.netloc, prefix=prefix or None, config=config, client_options=client, retry_config=_RETRIES
        )

    def _call(self, what: str, call: Callable[[], T]) -> T:
        import obstore.exceptions as errors  # noqa: PLC0415 - an optional package

        try:
            return call()
        except FileNotFoundError:
            raise
        except (errors.PermissionDeniedError, errors.UnauthenticatedError) as error:
            raise ConnectError(f"{self.root} refuses to {what}: {error}") from error
        except (errors.AlreadyExistsError, errors.PreconditionError):
            raise
        except errors.BaseError as error:
            raise RetriableError(f"{self.root} cannot {what}: {error}") from error

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        """List all objects under a prefix."""
        import obstore  # noqa: PLC0415

        pages = self._call("list objects", lambda: list(obstore.list(self._store, prefix or None)))
        for page in pages:
            for each in page:
                yield Entry(each["path"], each["size"], int(each["last_modified"].timestamp() * 1000))

    def entry(self, key: str) -> Entry | None:
        """Return one object, or None if it does not exist."""
        import obstore  # noqa: PLC0415

        try:
            found = self._call(f"describe {key}", lambda: obstore.head(self._store, key))
        except FileNotFoundError:
            return None
        return Entry(key, found["size"], int(found["last_modified"].timestamp() * 1000))

    def read(self, key: str, start: int, length: int) -> bytes:
        """Return bytes from a position."""
        import obstore  # noqa: PLC0415

        entry = self.entry(key)
        if entry is None:
            raise FileNotFoundError(key)
        length = min(length, entry.size - start)
        if length <= 0:
            return b""
        found = self._call(f"read {key}", lambda: obstore.get_range(self._store, key, start=start, length=length))
        return bytes(found)

    def write(self, key: str, contents: bytes) -> None:
        """Put an object."""
        import obstore  # noqa: PLC0415

        self._call(f"write {key}", lambda: obstore.put(self._store, key, contents))

    def delete(self, key: str) -> None:
        """Delete an object."""
        import obstore  # noqa: PLC0415

        self._call(f"delete {key}", lambda: obstore.delete(self._store, key))

    def move(self, key: str, target: str) -> None:
        """Copy an object and delete the first one."""
        import obstore  # noqa: PLC0415

        self._call(f"copy {key}", lambda: obstore.copy(self._store, key, target))
        self.delete(key)

    def versioned(self, key: str) -> tuple[bytes, Any] | None:
        """Return a small object with its ETag."""
        import obstore  # noqa: PLC0415

        try:
            found = self._call(f"read {key}", lambda: obstore.get(self._store, key))
            version = {"e_tag": found.meta["e_tag"], "version": found.meta.get("version")}
            return bytes(found.bytes()), {name: value for name, value in version.items() if value is not None}
        except FileNotFoundError:
            return None

    def replace(self, key: str, contents: bytes, version: Any) -> bool:
        """Put with If-None-Match or If-Match."""
        import obstore  # noqa: PLC0415
        import obstore.exceptions as errors  # noqa: PLC0415

        mode: Any = "create" if version is None else version
        try:
            self._call(f"write {key}", lambda: obstore.put(self._store, key, contents, mode=mode, use_multipart=False))
        except (errors.AlreadyExistsError, errors.PreconditionError, FileNotFoundError):
            return False
        return True


S3_SETTINGS: Final = (
    Setting("s3.endpoint", SettingType.STRING, "URL of the S3 server; empty: AWS.", "", Importance.LOW),
    Setting("s3.region", SettingType.STRING, "Region of the bucket.", "us-east-1", Importance.LOW),
    Setting("s3.access.key.id", SettingType.STRING, "Access key; empty: the environment's.", "", Importance.LOW),
    Setting("s3.secret.access.key", SettingType.PASSWORD, "Secret of the access key.", None, Importance.LOW),
)


def s3_options(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of S3 by obstore's names."""
    secret = values["s3.secret.access.key"]
    options = {
        "endpoint": values["s3.endpoint"],
        "region": values["s3.region"],
        "access_key_id": values["s3.access.key.id"],
        "secret_access_key": secret.secret if isinstance(secret, Password) else "",
    }
    return {name: value for name, value in options.items() if value}


def storage_of(root: str, values: Mapping[str, Any]) -> Storage:
    """Return the storage of a directory or an `s3://bucket/prefix`."""
    if root.startswith("s3://"):
        return ObjectStorage(root.rstrip("/"), s3_options(values))
    return LocalStorage(root.removeprefix("file://"))
