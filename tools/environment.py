"""Sets up .venv for the Makefile: `environment.py run` for examples/flights.py, `environment.py dev` for everything.

A stamp file for each purpose says which state of the project was installed; nothing happens while it is up to date.
`dev` includes `run`. A .venv that does not run, that has an older Python than Ottla needs, or whose installation was
interrupted is rebuilt. The kernels are compiled in a second process while packages are downloaded, which leaves the
cores idle. Uses nothing but the standard library. Exit code 0, 1 if a step failed, 130 if interrupted.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = {"run": "demo", "dev": "dev"}
SERVED_BY = {"run": ("run", "dev"), "dev": ("dev",)}
OLDEST = (3, 11)
INPUTS = (
    "pyproject.toml",
    "setup.py",
    "constraints.txt",
    "src/ottla/*/*.pxd",
    "src/ottla/*/_[a-z]*.py",
    "src/ottla/clients/producer/_[a-z]*.p*",
    "src/ottla/broker/metrics/_[a-z]*.p*",
)
# pyspark has no wheel. Compressing one, only to unpack it again, would take a third of the time of its installation.
SPARK_OPTIONS = ("--use-pep517", "--no-deps", "--config-settings=--build-option=--compression=stored")
PIP_OPTIONS = ("--disable-pip-version-check", "--no-input", "--no-compile", "--progress-bar=off")
STEP_DEADLINE_S = 3600.0
PHASE = re.compile(
    r"\s*((?:Collecting|Downloading|Using cached|Building|Preparing|Installing) .*?)(?:: (?:started|still running...))?"
)
# The list of pip's files is written last: without it, the creation of the environment was interrupted.
PROBE = (
    "import sys, pip, importlib.metadata as metadata; "
    "print(*sys.version_info[:2]) if metadata.distribution('pip').read_text('RECORD') else sys.exit(1)"
)
FIND_JAVA = "from ottla.spark.session import use_java; use_java()"


class StepFailed(Exception):
    """A command of a step failed; the message contains the end of its output."""


# --- what is needed -------------------------------------------------------------------------------------------------


def requirements(project: Mapping[str, Any], extra: str) -> list[str]:
    """The dependencies of the project with an extra, where `ottla[a,b]` stands for the extras a and b."""
    found = list(project["dependencies"])
    pending, seen = [extra], {extra}
    while pending:
        for requirement in project["optional-dependencies"][pending.pop()]:
            own = re.fullmatch(r"ottla\[([\w,-]+)\]", requirement)
            if own is None:
                found.append(requirement)
                continue
            for name in own.group(1).split(","):
                if name not in seen:
                    seen.add(name)
                    pending.append(name)
    return found


def digest(root: Path) -> str:
    """Identifies the state of everything that an installation depends on."""
    state = hashlib.sha256()
    for pattern in INPUTS:
        for path in sorted(root.glob(pattern)):
            state.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return state.hexdigest()


def stamp(venv: Path, purpose: str) -> Path:
    return venv / f".installed-{purpose}"


def is_installed(venv: Path, purpose: str, state: str) -> bool:
    """Whether a stamp says that this state is installed for the purpose, or for one that includes it."""
    stamps = [stamp(venv, serving) for serving in SERVED_BY[purpose]]
    return any(path.is_file() and path.read_text() == state for path in stamps)


def defect(venv: Path, wanted: tuple[int, int] | None) -> str | None:
    """Why the virtual environment cannot be used, or None. `wanted` is the Python version that the user asked for."""
    if not venv.exists():
        return "it does not exist"
    if marker(venv).exists():
        return "its installation was interrupted"
    try:
        probe = subprocess.run(
            [python_of(venv), "-c", PROBE], capture_output=True, text=True, timeout=60, check=False, cwd=venv
        )
    except OSError as error:
        return f"its Python does not run: {error.strerror}"
    if probe.returncode != 0:
        return "its Python does not run, or has no pip"
    major, minor = map(int, probe.stdout.split())
    if (major, minor) < OLDEST or (wanted is not None and (major, minor) != wanted):
        return f"it has Python {major}.{minor}"
    return None


def marker(venv: Path) -> Path:
    """A file that exists while packages are installed."""
    return venv / ".installing"


def python_of(venv: Path) -> Path:
    return venv / "bin" / "python"


# --- commands -------------------------------------------------------------------------------------------------------


class Job:
    """A command in a process group of its own; its output goes to a file, the latest phase of pip to `phase`."""

    def __init__(self, command: Iterable[str | Path], log: Path, environment: Mapping[str, str]) -> None:
        self.phase = ""
        self.log = log
        self._process = subprocess.Popen(
            list(command),
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            process_group=0,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output, self.log.open("w", encoding="utf-8") as log:
            for line in output:
                log.write(line)
                log.flush()
                self.phase = phase(line) or self.phase

    def has_ended(self, within_s: float) -> bool:
        """Whether the command ended within the time. Raises StepFailed if it failed."""
        try:
            code = self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            return False
        self._reader.join(10)
        if code != 0:
            tail = "".join(self.log.read_text(encoding="utf-8").splitlines(keepends=True)[-15:])
            raise StepFailed(f"{tail.rstrip()}\n(exit code {code}; the whole output is in {self.log})")
        return True

    def stop(self) -> bool:
        """End the command and its processes; whether it was still running."""
        if self._process.poll() is not None:
            return False
        os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
        return True


def phase(line: str) -> str | None:
    """The phase that a line of pip's output announces, in a few words."""
    found = PHASE.fullmatch(line.rstrip("\n"))
    if found is None or "finished with" in line:
        return None
    words = found.group(1).replace(" (pyproject.toml)", "")
    listed = words.removeprefix("Installing collected packages: ")
    return f"Installing {len(listed.split(', '))} packages" if listed != words else words


class Steps:
    """Shows numbered steps: one line that changes at a terminal, and a line now and then elsewhere."""

    def __init__(self, count: int, temporary: Path) -> None:
        self._count = count
        self._temporary = temporary
        self._number = 0
        self._terminal = sys.stdout.isatty()
        self._started = time.monotonic()

    def run(self, title: str, job: Job) -> None:
        """Show a job until it ends. Raises StepFailed."""
        self._number += 1
        head = f"{self._number}/{self._count} {title}"
        started = time.monotonic()
        next_line = started
        while not job.has_ended(0.5):
            now = time.monotonic()
            if now - started > STEP_DEADLINE_S:
                raise StepFailed(f"not done after {STEP_DEADLINE_S:.0f} s")
            line = f"{head}: {now - started:.0f} s{self._detail(job)}"
            if self._terminal:
                print(f"\r{line[: shutil.get_terminal_size().columns - 1]}\x1b[K", end="", flush=True)
            elif now >= next_line:
                print(line, flush=True)
                next_line = now + 15
        print(f"{chr(13) if self._terminal else ''}{head}: done in {time.monotonic() - started:.0f} s", end="")
        print("\x1b[K" if self._terminal else "", flush=True)

    def _detail(self, job: Job) -> str:
        if not job.phase:
            return ""
        megabytes = sum(_sizes(self._temporary)) / 1e6 if job.phase.startswith("Downloading") else 0
        return f"  {job.phase}" + (f", {megabytes:.0f} MB so far" if megabytes else "")

    def elapsed_s(self) -> float:
        return time.monotonic() - self._started


def _sizes(temporary: Path) -> Iterator[int]:
    """Sizes of the files that pip is downloading."""
    for path in temporary.glob("pip-unpack-*/*"):
        try:
            yield path.stat().st_size
        except OSError:  # moved meanwhile
            continue


# --- all of it ------------------------------------------------------------------------------------------------------


def install(venv: Path, purpose: str, state: str, rebuild: bool) -> None:
    """Create the environment if need be, and install. Raises StepFailed."""
    temporary = venv / "tmp"
    # Another purpose may have installed this very state of the project: its kernels are compiled then.
    compile_kernels = rebuild or not any(is_installed(venv, other, state) for other in EXTRAS)
    steps = Steps(2 + rebuild + compile_kernels, temporary)
    jobs: list[Job] = []
    try:
        if rebuild:
            steps.run("Virtual environment", start(jobs, create_command(venv), ROOT / "build" / "venv.log"))
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        marker(venv).touch()
        install_packages(venv, needed(venv, purpose), compile_kernels, steps, jobs)
        marker(venv).unlink()
    except (StepFailed, KeyboardInterrupt):
        killed = [job for job in jobs if job.stop()]
        if not killed:
            marker(venv).unlink(missing_ok=True)  # pip undoes what it cannot finish
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    if not any((ROOT / "src").rglob("*.so")):
        print("The kernels were not compiled (is there a C compiler?): plain Python is used, which is slower.")
    print(f"Ready after {steps.elapsed_s():.0f} s.", flush=True)


def start(jobs: list[Job], command: list[str | Path], log: Path, **environment: str) -> Job:
    log.parent.mkdir(exist_ok=True)
    job = Job(command, log, environment)
    jobs.append(job)
    return job


def create_command(venv: Path) -> list[str | Path]:
    # The base: the Python of .venv itself may run this, and is about to be deleted.
    return [getattr(sys, "_base_executable", sys.executable), "-m", "venv", "--clear", venv]


def needed(venv: Path, purpose: str) -> list[str]:
    """The requirements of a purpose on this machine."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = requirements(project, EXTRAS[purpose])
    if purpose == "run" and not has_java(venv):
        wanted += project["optional-dependencies"]["java"]
    return wanted


def install_packages(venv: Path, wanted: list[str], compile_kernels: bool, steps: Steps, jobs: list[Job]) -> None:
    """Install the requirements and the project itself, whose kernels are compiled meanwhile. Raises StepFailed."""
    pip: list[str | Path] = [python_of(venv), "-m", "pip", "install", *PIP_OPTIONS, "-c", "constraints.txt"]

    def begin(name: str, *arguments: str) -> Job:
        # Spark needs over 2 GB to be unpacked and built, and /tmp may be in memory.
        return start(jobs, [*pip, *arguments], venv / f"install-{name}.log", TMPDIR=str(venv / "tmp"))

    kernels = begin("ottla", "--no-deps", "--editable", ".") if compile_kernels else None
    (spark,) = (requirement for requirement in wanted if requirement.startswith("pyspark"))
    steps.run("Spark, about 460 MB", begin("spark", *SPARK_OPTIONS, spark))
    steps.run("Other packages", begin("packages", *wanted))
    if kernels is not None:
        steps.run("Ottla, with compiled kernels", kernels)


def has_java(venv: Path) -> bool:
    """Whether Spark would find a Java that is new enough."""
    found = subprocess.run(
        [python_of(venv), "-c", FIND_JAVA],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        timeout=60,
        check=False,
    )
    return found.returncode == 0


def main(arguments: list[str]) -> int:
    """`run` or `dev`, and the Python that the user named, if any."""
    purpose, named = arguments[0], "".join(arguments[1:])
    venv, state = ROOT / ".venv", digest(ROOT)
    why = defect(venv, (sys.version_info[0], sys.version_info[1]) if named else None)
    if why is None and is_installed(venv, purpose, state):
        return 0
    if why is not None and venv.exists():
        print(f"Rebuilding .venv: {why}.")
    version = sys.version.split()[0]
    aim = "for `make run`" if purpose == "run" else "for development and tests"
    print(f"Setting up .venv {aim}" + (f" with Python {version}" if why else "") + " ...", flush=True)
    try:
        install(venv, purpose, state, rebuild=why is not None)
    except StepFailed as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted: the next `make` starts over, with the packages that pip has cached.", file=sys.stderr)
        return 130
    stamp(venv, purpose).write_text(state)
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
