"""Builds Ottla's wheels for CPython 3.11 to 3.14 on manylinux x86-64 and aarch64, and runs them: `make wheels`.

It needs a JDK with Maven on Linux x86-64, and no container: Zig, a package of PyPI, is the compiler, and links with the
symbols of glibc 2.17 (manylinux2014) whatever glibc this machine has. Headers and interpreters of each Python are jars
of Maven Central (`pom.xml`). The headers for x86-64 serve both machines: on 64-bit Linux they differ in nothing that an
extension uses.

1. Create a virtual environment for each Python, and one for Zig and auditwheel.
2. Translate the kernels to C once, in the contents of the source archive.
3. Build a wheel in a copy of that for each Python and machine. `auditwheel` must agree with its platform tag, and it
   must contain each kernel.
4. Install each wheel in a new environment, start `ottla up` there, and let a producer and a consumer use it. On aarch64
   this needs an interpreter (not 3.13), QEMU's emulator of user programs, and the libraries libc6 and zlib1g for arm64
   (Debian: `dpkg --add-architecture arm64`; or a directory with them, named in QEMU_LD_PREFIX). The output says which
   wheels were not run.

The source archive is beside them. All times in these files are the time of the commit (SOURCE_DATE_EPOCH), and nothing
names the directory of the build, so that two builds of one commit are equal byte for byte. `twice` builds each wheel
again elsewhere and compares.

    python tools/wheels/build.py                       all wheels, into dist/
    python tools/wheels/build.py 3.14 aarch64          the wheels of one Python or machine
    python tools/wheels/build.py 3.14 x86_64 twice     and compare two builds

Exit code 0, or 1 if a step failed, with the end of its output. The other wheels are built all the same.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
WORK = ROOT / "build" / "wheels"
DIST = ROOT / "dist"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
# The names of a machine in wheel tags, and in the jars.
MACHINES = {"x86_64": "linux-x86_64", "aarch64": "linux-arm64"}
GLIBC = (2, 17)
COMPILER = "ziglang>=0.13"
BUILD_REQUIREMENTS = ("setuptools>=77", "Cython>=3.1")
EMULATOR = "qemu-aarch64-static"
TWICE = "twice"
# Below the directory in QEMU_LD_PREFIX if it is set.
LOADER_OF_AARCH64 = "lib/ld-linux-aarch64.so.1"
STEP_DEADLINE_S = 1800.0
START_DEADLINE_S = 120.0
TRANSLATE = "import setup; setup.extensions()"
EXTENSIONS = "import setup; print(*(extension.name for extension in setup.extensions()))"
STORY = """
import importlib, sys
from ottla.clients import Admin, Consumer, Producer

address, *kernels = sys.argv[1:]
for kernel in kernels:
    assert importlib.import_module(kernel).__file__.endswith(".so"), kernel
with Admin(bootstrap_servers=address) as admin:
    admin.create_topic("story", partitions=1)
    assert admin.list_transactions(pattern="s.*") == []
with Producer(bootstrap_servers=address, compression_type="lz4") as producer:
    for value in (b"one", b"two", b"three"):
        producer.send("story", value).result(30)
with Consumer({"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
    consumer.subscribe("story")
    values = []
    for _ in range(60):
        values += [record.value for record in consumer.poll(1)]
        if len(values) == 3:
            break
assert values == [b"one", b"two", b"three"], values
"""


class StepFailed(Exception):
    """A step failed; the message says which, with the end of its output."""


@dataclass(frozen=True)
class Target:
    """One wheel: a Python version and a machine."""

    python: str
    machine: str

    def __str__(self) -> str:
        return f"CPython {self.python}, {self.machine}"

    @property
    def tag(self) -> str:
        return "cp" + self.python.replace(".", "")

    @property
    def platform(self) -> str:
        return f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{self.machine}"

    @property
    def interpreter(self) -> Path:
        """The interpreter from the jar, which need not exist: 3.13 is not published for aarch64."""
        return WORK / "cpython" / self.python / MACHINES[self.machine] / "bin" / f"python{self.python}"


@dataclass(frozen=True)
class Material:
    """The input of all wheels: the translated source, the compiler, and the time in the archives."""

    source: Path
    zig: Path
    epoch_s: str


def run(command: list[str | Path], cwd: Path = ROOT, **environment: str) -> str:
    """Run a command and return its standard output. Raises StepFailed."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=STEP_DEADLINE_S,
        check=False,
    )
    if done.returncode != 0:
        raise StepFailed(f"{' '.join(map(str, command))}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def environment_of(python: Path | None, name: str, *requirements: str) -> Path:
    """Create a virtual environment of an interpreter, or of the running one. Returns its `bin`."""
    directory = WORK / "environments" / name
    if python is None:
        venv.create(directory, clear=True, with_pip=True)
    else:
        run([python, "-m", "venv", "--clear", directory])
    if requirements:
        run(
            [
                directory / "bin" / "python",
                "-m",
                "pip",
                "--quiet",
                "--disable-pip-version-check",
                "install",
                *requirements,
            ]
        )
    return directory / "bin"


def fetch_pythons() -> None:
    """Unpack the headers and interpreters of all targets."""
    jars = WORK / "jars"
    run(["mvn", "-q", "-B", "-f", HERE / "pom.xml", "dependency:copy", f"-DoutputDirectory={jars}"])
    for jar in sorted(jars.glob("cpython-*.jar")):
        _, version, _, machine = jar.stem.split("-", 3)
        directory = WORK / "cpython" / version.rpartition(".")[0]
        if (directory / machine).exists():
            continue
        with tempfile.TemporaryDirectory(dir=WORK) as unpacked, zipfile.ZipFile(jar) as archive:
            prefix = f"org/bytedeco/cpython/{machine}/"
            archive.extractall(unpacked, [name for name in archive.namelist() if name.startswith(prefix)])
            shutil.copytree(Path(unpacked, prefix), directory / machine)
        for program in (directory / machine / "bin").iterdir():
            program.chmod(0o755)


def commit_time() -> str:
    """The time of the commit in seconds, or SOURCE_DATE_EPOCH: all times in the archives."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return given or run(["git", "log", "-1", "--format=%ct"]).strip()


def source_archive(python: Path, epoch_s: str) -> Path:
    """Write the source archive of this checkout into dist/, unpack it, and translate its kernels to C."""
    shutil.rmtree(WORK / "source", ignore_errors=True)
    (WORK / "source").mkdir(parents=True)
    build = f"from setuptools.build_meta import build_sdist; build_sdist({str(WORK / 'source')!r})"
    run([python, "-c", build], SOURCE_DATE_EPOCH=epoch_s)
    (archive,) = (WORK / "source").iterdir()
    DIST.mkdir(exist_ok=True)
    shutil.copy(archive, DIST)
    with tarfile.open(archive) as tar:
        tar.extractall(WORK / "source", filter="data")
    source = WORK / "source" / archive.name.removesuffix(".tar.gz")
    run([python, "-c", TRANSLATE], source)
    return source


def build(target: Target, material: Material, output: Path) -> Path:
    """Build a wheel in a copy of the source, and copy it into the output directory."""
    python = WORK / "environments" / f"build-{target.python}" / "bin" / "python"
    with tempfile.TemporaryDirectory(dir=WORK) as directory:
        copy = Path(directory, "source")
        shutil.copytree(material.source, copy)
        compiler = f"{material.zig} cc -target {target.machine}-linux-gnu.{GLIBC[0]}.{GLIBC[1]} -fno-sanitize=undefined"
        pip: list[str | Path] = [
            python,
            "-m",
            "pip",
            "--quiet",
            "--disable-pip-version-check",
            "wheel",
            "--no-deps",
            "--no-build-isolation",
        ]
        run(
            [*pip, "--wheel-dir", directory, f"--config-settings=--build-option=--plat-name={target.platform}", copy],
            CC=compiler,
            LDSHARED=f"{compiler} -shared -s",
            # Some of the interpreters name a directory of the machine that built them.
            LDFLAGS="",
            SETUPTOOLS_EXT_SUFFIX=f".cpython-{target.tag[2:]}-{target.machine}-linux-gnu.so",
            ZIG_GLOBAL_CACHE_DIR=str(WORK / "zig"),
            ZIG_LOCAL_CACHE_DIR=str(WORK / "zig"),
            SOURCE_DATE_EPOCH=material.epoch_s,
        )
        (wheel,) = Path(directory).glob("*.whl")
        if not wheel.name.endswith(f"-{target.tag}-{target.tag}-{target.platform}.whl"):
            raise StepFailed(f"unexpected tags: {wheel.name}")
        return Path(shutil.copy(wheel, output))


def compare(target: Target, wheel: Path, material: Material) -> None:
    """Build the wheel again. Raises StepFailed if it differs."""
    with tempfile.TemporaryDirectory(dir=WORK) as directory:
        again = build(target, material, Path(directory))
        if again.read_bytes() != wheel.read_bytes():
            members = [
                {member.filename: (member.CRC, member.date_time) for member in zipfile.ZipFile(each).infolist()}
                for each in (wheel, again)
            ]
            differing = sorted(name for name, _ in members[0].items() ^ members[1].items())
            raise StepFailed(f"a second build differs: {', '.join(differing[:10]) or 'order or compression'}")


def check(target: Target, wheel: Path, kernels: list[str], auditwheel: Path) -> None:
    """Raise StepFailed unless the wheel has all kernels, and no symbol that is newer than its tag allows."""
    suffix = f".cpython-{target.tag[2:]}-{target.machine}-linux-gnu.so"
    compiled = {name.removesuffix(suffix) for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")}
    # setup.py omits all kernels if one of them does not compile.
    if compiled != {kernel.replace(".", "/") for kernel in kernels}:
        raise StepFailed(f"the wheel has these kernels: {', '.join(sorted(compiled)) or 'none'}")
    report = " ".join(run([auditwheel, "show", wheel]).split())
    if f'platform tag: "{target.platform}"' not in report:
        raise StepFailed(f"the wheel does not conform to its tag: {report}")


def verify(target: Target, wheel: Path, kernels: list[str]) -> str:
    """Run a broker, a producer and a consumer from the wheel. Returns why not, or "runs"."""
    if not target.interpreter.exists():
        return "not run: no interpreter is published"
    # The jar has the libffi of its interpreter, where the linker does not look: ctypes needs it.
    libraries = {"LD_LIBRARY_PATH": str(target.interpreter.parents[1])}
    if target.machine == "x86_64":
        environment = environment_of(target.interpreter, f"run-{target.python}", str(wheel))
        tell_story([environment / "python"], kernels, **libraries)
        return "runs"
    if shutil.which(EMULATOR) is None or not Path(os.environ.get("QEMU_LD_PREFIX", "/"), LOADER_OF_AARCH64).exists():
        return f"not run: install {EMULATOR}, and libc6 and zlib1g for arm64"
    site = WORK / "environments" / f"site-{target.python}-{target.machine}"
    shutil.rmtree(site, ignore_errors=True)
    pip: list[str | Path] = [
        WORK / "environments" / f"build-{target.python}" / "bin" / "python",
        "-m",
        "pip",
        "--disable-pip-version-check",
    ]
    platforms = [f"--platform=manylinux_2_{minor}_{target.machine}" for minor in (28, 27, 24, 17)]
    platforms.append(f"--platform=manylinux2014_{target.machine}")
    run([*pip, "install", "--quiet", "--target", site, "--only-binary=:all:", *platforms, wheel])
    tell_story([EMULATOR, target.interpreter], kernels, PYTHONPATH=str(site), **libraries)
    return "runs (emulated)"


def tell_story(python: list[str | Path], kernels: list[str], **environment: str) -> None:
    """Start a broker, produce and consume. Raises StepFailed."""
    environment |= {"OTTLA_KERNELS": "compiled", "PYTHONUNBUFFERED": "1"}
    with tempfile.TemporaryDirectory() as directory:
        home, output = Path(directory), Path(directory, "output")
        with output.open("wb") as out:
            broker = subprocess.Popen(
                [*python, "-m", "ottla", "up", "--data", str(home / "data"), "--listen", "127.0.0.1:0"],
                cwd=home,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        try:
            address = _address(broker, output)
            run([*python, "-c", STORY, address, *kernels], home, **environment)
            broker.terminate()
            if broker.wait(START_DEADLINE_S) != 0:
                raise StepFailed(f"the broker ended with code {broker.returncode}:\n{output.read_text()[-3000:]}")
        finally:
            broker.kill()
            broker.wait()


def _address(broker: subprocess.Popen[bytes], output: Path) -> str:
    """Wait for the first line of a broker, which has its address."""
    deadline = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < deadline and broker.poll() is None:
        for line in output.read_text(errors="replace").splitlines(keepends=True):
            if line.startswith("bootstrap=") and line.endswith("\n"):
                return line.strip().removeprefix("bootstrap=")
        time.sleep(0.1)
    raise StepFailed(f"the broker does not start:\n{output.read_text(errors='replace')[-3000:]}")


def chosen(arguments: list[str]) -> list[Target]:
    """The targets that the command line names. Raises StepFailed."""
    unknown = set(arguments) - {*PYTHONS, *MACHINES, TWICE}
    if unknown:
        raise StepFailed(
            f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join([*PYTHONS, *MACHINES, TWICE])}"
        )
    pythons = [python for python in PYTHONS if python in arguments] or list(PYTHONS)
    machines = [machine for machine in MACHINES if machine in arguments] or list(MACHINES)
    return [Target(python, machine) for python in pythons for machine in machines]


def main(arguments: list[str]) -> int:
    """Build, check and run the chosen wheels."""
    try:
        targets = chosen(arguments)
        WORK.mkdir(parents=True, exist_ok=True)
        fetch_pythons()
        tools = environment_of(None, "tools", COMPILER, "auditwheel")
        (zig,) = tools.parent.glob("lib/python*/site-packages/ziglang/zig")
        # Before the translation: Cython translates again what is older than its own files.
        builders = {
            python: environment_of(Target(python, "x86_64").interpreter, f"build-{python}", *BUILD_REQUIREMENTS)
            for python in sorted({target.python for target in targets})
        }
        first = next(iter(builders.values())) / "python"
        # Once: a commit during the build must not make the wheels differ.
        epoch_s = commit_time()
        material = Material(source_archive(first, epoch_s), zig, epoch_s)
        kernels = run([first, "-c", EXTENSIONS], material.source).split()
    except (StepFailed, subprocess.TimeoutExpired, FileNotFoundError) as error:
        print(f"wheels: {error}", file=sys.stderr)
        return 1
    failed = 0
    for target in targets:
        started = time.monotonic()
        try:
            wheel = build(target, material, DIST)
            check(target, wheel, kernels, tools / "auditwheel")
            if TWICE in arguments:
                compare(target, wheel, material)
            outcome = verify(target, wheel, kernels)
        except (StepFailed, subprocess.TimeoutExpired) as error:
            # The others take most of an hour: one failure must not hide theirs.
            print(f"wheels: {target}: {error}", file=sys.stderr, flush=True)
            failed += 1
            continue
        print(
            f"{wheel.name}  {wheel.stat().st_size / 1e6:.1f} MB  {time.monotonic() - started:.0f} s  {outcome}",
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
