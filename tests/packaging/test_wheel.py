"""`pip install`: the contents of the source archive and of wheels made of it; broker and clients run from each.

Built with the setuptools and Cython that are installed already, without optimising: seconds, and no network. The tests
are in one xdist group, so that everything is built once.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.ottla_process import OttlaProcess

ROOT = Path(__file__).parents[2]
# The installation into .venv leaves these translations. One that is older than its source is translated again.
TRANSLATIONS = ROOT / "build" / "cython"
EXTENSIONS = {
    "ottla/records/_record_reader",
    "ottla/records/_record_writer",
    "ottla/records/_encode_columns",
    "ottla/records/_decode_columns",
    "ottla/records/_survey",
    "ottla/records/_framed_fields",
    "ottla/protocol/_shapes",
    "ottla/protocol/_decoding",
    "ottla/protocol/_encoding",
    "ottla/clients/producer/_encoder",
    "ottla/broker/metrics/_request_counter",
    *(f"ottla/serde/{path.stem}" for path in (ROOT / "src/ottla/serde").glob("_*.pxd")),
}
STORY = """
import json, sys
import pyarrow as pa
from ottla.clients import Admin, Consumer, Producer
from ottla.clients.producer import batch
from ottla.common.kernels import is_compiled
from ottla.records import kernels

with Admin(bootstrap_servers=sys.argv[1]) as admin:
    admin.create_topic("story", partitions=1)
with Producer(bootstrap_servers=sys.argv[1], compression_type="lz4") as producer:
    producer.send("story", b"one", key=b"k", headers=[("h", b"1")]).result(10)
    producer.send_batch("story", pa.table({"value": [b"two", b"three"]})).result(10)
settings = {"bootstrap.servers": sys.argv[1], "group.id": "readers", "auto.offset.reset": "earliest"}
with Consumer(settings) as consumer:
    consumer.subscribe("story")
    records = []
    while len(records) < 3:
        records += consumer.poll(10)
    consumer.seek_to_beginning()
    rows = []
    while len(rows) < 3:
        rows += consumer.poll_arrow(10).to_pylist()
print(json.dumps({
    "compiled": [kernels.COMPILED, is_compiled("ottla.records._decode_columns"), batch.COMPILED],
    "records": [record.value.decode() for record in records],
    "rows": [row["value"].decode() for row in rows],
    "header": records[0].headers[0][0],
    "from": kernels.__file__,
}))
"""

EPOCH_S = "1700000000"

# A build takes a minute of a processor.
pytestmark = [pytest.mark.long, pytest.mark.xdist_group("packaging"), pytest.mark.timeout(300)]


def run(command: list[str], cwd: Path, **environment: str) -> str:
    """Standard output of a command that must succeed within three minutes."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, f"{command} in {cwd}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout in which nothing was built, or only the kernels were translated to C: a third of the time of a build.

    The source archive, which is made here, must not contain the translations.
    """
    checkout = tmp_path_factory.mktemp("checkout")
    if TRANSLATIONS.is_dir():
        shutil.copytree(TRANSLATIONS, checkout / TRANSLATIONS.relative_to(ROOT))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    built = shutil.ignore_patterns("*.so", "*.c", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "src", checkout / "src", ignore=built)
    return checkout


def archive_of(checkout: Path, directory: str, **environment: str) -> Path:
    build = f"from setuptools.build_meta import build_sdist; build_sdist({directory!r})"
    run([sys.executable, "-c", build], checkout, SOURCE_DATE_EPOCH=EPOCH_S, **environment)
    (archive,) = (checkout / directory).iterdir()
    return archive


@pytest.fixture(scope="module")
def archive(checkout: Path) -> Path:
    return archive_of(checkout, "dist")


def unpacked(archive: Path, directory: Path) -> Path:
    """The contents of the archive."""
    with tarfile.open(archive) as tar:
        tar.extractall(directory, filter="data")
    (source,) = directory.iterdir()
    return source


def wheel_of(source: Path, directory: Path, **environment: str) -> Path:
    """The wheel that pip makes of the archive's contents."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-cache-dir", "wheel", "--quiet"]
    run([*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", str(directory), "."], source, **environment)
    (wheel,) = directory.glob("*.whl")
    return wheel


def installed(wheel: Path, directory: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-compile"]
    run([*pip, "--no-deps", "--no-index", "--target", str(directory), str(wheel)], wheel.parent)
    return directory


@pytest.fixture(scope="module")
def source(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(archive, tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def wheel_without_compiler(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel_of(source, tmp_path_factory.mktemp("nocompiler"), CC="/bin/false")


@pytest.fixture(scope="module")
def wheel(source: Path, wheel_without_compiler: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built where the previous build only translated the kernels, as after the installation of a compiler."""
    return wheel_of(source, tmp_path_factory.mktemp("wheel"), CFLAGS="-O0")


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(wheel, tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def site_without_compiler(wheel_without_compiler: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(wheel_without_compiler, tmp_path_factory.mktemp("puresite"))


@pytest.fixture(scope="module")
def sources(checkout: Path) -> set[str]:
    """The files of the packages, relative to src."""
    kinds = ("*.py", "*.pyi", "*.pxd", "py.typed", "*.properties")
    return {path.relative_to(checkout / "src").as_posix() for kind in kinds for path in (checkout / "src").rglob(kind)}


def compiled_in(wheel: Path) -> set[str]:
    return {name.partition(".")[0] for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")}


def test_the_source_archive_has_all_that_a_build_needs_and_nothing_that_was_built(
    archive: Path, sources: set[str]
) -> None:
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert {f"src/{name}" for name in sources} <= names
    assert {"pyproject.toml", "setup.py", "README.md", "LICENSE"} <= names
    assert not {name for name in names if name.endswith((".c", ".so", ".pyc"))}


def test_without_a_compiler_the_wheel_is_made_all_the_same(wheel_without_compiler: Path, sources: set[str]) -> None:
    assert compiled_in(wheel_without_compiler) == set()
    assert sources <= set(zipfile.ZipFile(wheel_without_compiler).namelist())


def test_the_wheel_has_every_kernel_compiled_and_the_fallbacks_beside_them(wheel: Path, sources: set[str]) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert re.search(r"-cp\d+-cp\d+-linux_", wheel.name)
    assert compiled_in(wheel) == EXTENSIONS
    assert sources <= names
    assert "ottla/py.typed" in names
    assert {name.partition("/")[0] for name in names if not name.startswith("ottla-")} <= {"ottla", "pyspark_ottla"}
    assert not {name for name in names if re.search(r"(^|/)(tests?|benchmarks)/|\.c$|conftest", name)}


def test_without_cython_the_wheel_fits_every_machine_and_two_builds_are_equal(
    checkout: Path, archive: Path, tmp_path: Path
) -> None:
    """`tools/wheels/build.py twice` compares wheels with compiled kernels."""
    hidden = tmp_path / "hidden" / "Cython"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('hidden by a test')\n")
    environment = {"PYTHONPATH": str(hidden.parent), "SOURCE_DATE_EPOCH": EPOCH_S}
    wheel = wheel_of(unpacked(archive, tmp_path / "source"), tmp_path / "built", **environment)
    assert wheel.name.endswith("-py3-none-any.whl")
    assert compiled_in(wheel) == set()

    (checkout / "README.md").touch()
    (checkout / "LICENSE").chmod(0o600)
    again = archive_of(checkout, "again", PYTHONPATH=str(hidden.parent))
    assert again.read_bytes() == archive.read_bytes()
    wheel_again = wheel_of(unpacked(again, tmp_path / "other"), tmp_path / "built-again", **environment)
    assert wheel_again.read_bytes() == wheel.read_bytes()


def test_the_command_and_the_plugin_are_declared(site: Path) -> None:
    entries = next(site.glob("ottla-*.dist-info/entry_points.txt")).read_text()
    assert "[console_scripts]\nottla = ottla.__main__:main" in entries
    assert "[pytest11]\nottla = ottla.testing.plugin" in entries
    assert "topic" in run([str(site / "bin" / "ottla"), "--help"], site, PYTHONPATH=str(site))


@pytest.mark.parametrize(("which", "compiled"), [("compiled", True), ("fallback", False), ("no compiler", False)])
def test_broker_and_clients_run_from_the_wheel(
    which: str, compiled: bool, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site: Path = request.getfixturevalue("site_without_compiler" if which == "no compiler" else "site")
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setenv("OTTLA_KERNELS", "auto" if which == "no compiler" else which)
    broker = OttlaProcess(tmp_path, {"group.initial.rebalance.delay.ms": 0})
    broker.start()
    try:
        story = json.loads(run([sys.executable, "-W", "error", "-c", STORY, broker.bootstrap], tmp_path))
    finally:
        code = broker.stop()
    broker.assert_no_traceback()
    assert code == 0
    assert story["from"].startswith(str(site))
    assert story["compiled"] == [compiled] * 3
    assert story["records"] == story["rows"] == ["one", "two", "three"]
    assert story["header"] == "h"
