"""Builds the compiled kernels, which are optional: without a compiler or Cython their sources run as Python.

The kernels call each other in C, so an extension cannot use the source of another one. If one extension cannot be
compiled, none is installed (`BuildAllOrNone`).

The kernels are translated and compiled in parallel, one job for each available core. `build_ext --parallel N` sets
another number of jobs for the compiler, the variable CFLAGS other flags (debug symbols are kept then). All other
metadata of the package is in pyproject.toml.

With SOURCE_DATE_EPOCH, source archives are the same byte for byte, wherever and whenever they are built; wheels are so
without more.
"""

import gzip
import os
import sys
import tarfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist
from setuptools.errors import BaseError, CCompilerError

RECORDS = Path("src/ottla/records")
PROTOCOL = Path("src/ottla/protocol")
SERDE = Path("src/ottla/serde")
SINGLE = (("clients.producer", "_encoder"), ("broker.metrics", "_request_counter"))
JOBS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
# Python's own flags often contain -g: debug symbols take a quarter of the compile time and nine tenths of the size.
# Sums of deltas wrap, as in Java.
FLAGS = ["-fwrapv"] if os.environ.get("CFLAGS") else ["-fwrapv", "-g0"]
# Python's -O3 takes 40 % more time for `serde`, and the result is not faster. Column encoding gains up to 6 % from it.
SERDE_FLAGS = [] if os.environ.get("CFLAGS") else ["-O2"]
# The source as comments makes the C files a fifth longer.
DIRECTIVES = {"emit_code_comments": False}


class BuildAllOrNone(build_ext):
    """Compiles all extensions. If one fails, warns and deletes all of them, also from earlier builds."""

    def build_extensions(self) -> None:
        try:
            super().build_extensions()
        except (BaseError, CCompilerError) as error:
            command = self.get_finalized_command("build_py")
            for module in self.extensions:
                name = self.get_ext_filename(self.get_ext_fullname(module.name))
                Path(self.build_lib, name).unlink(missing_ok=True)
                package, _, _ = module.name.rpartition(".")
                Path(command.get_package_dir(package), Path(name).name).unlink(missing_ok=True)
            self.extensions = []
            self.warn(
                f"THE KERNELS ARE NOT COMPILED, so records and codecs run as plain Python, many times slower. {error}. "
                "Install a C compiler and the headers of Python, and build again."
            )


class ReproducibleArchive(sdist):
    """With SOURCE_DATE_EPOCH, writes source archives without the times, owners and order of this machine's files."""

    def make_archive(self, base_name: str, archive_format: str, **options: str | None) -> str:
        epoch_s = os.environ.get("SOURCE_DATE_EPOCH")
        if epoch_s is None or archive_format != "gztar":
            return str(super().make_archive(base_name, archive_format, **options))

        def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
            member.mtime, member.uid, member.gid, member.uname, member.gname = int(epoch_s), 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            return member

        archive = f"{base_name}.tar.gz"
        with (
            open(archive, "wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=int(epoch_s)) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for path in sorted(Path(str(options["base_dir"])).rglob("*")):
                tar.add(path, recursive=False, filter=plain)
        return archive


def extensions() -> list[Extension]:
    """The kernels, or nothing without Cython."""
    try:
        from Cython.Build import cythonize  # noqa: PLC0415 - optional
    except ImportError:
        return []
    declarations = [str(path) for path in sorted(RECORDS.glob("*.pxd"))]
    codecs = [str(path) for path in sorted(PROTOCOL.glob("*.pxd"))]
    serde = [str(path) for path in sorted(SERDE.glob("*.pxd"))]
    modules: list[Extension] = cythonize(
        [
            Extension(f"ottla.records.{path.stem}", [str(path.with_suffix(".py"))], depends=declarations)
            for path in sorted(RECORDS.glob("*.pxd"))
            if path.with_suffix(".py").exists()
        ]
        + [
            Extension(
                f"ottla.{package}.{name}",
                [f"src/ottla/{package.replace('.', '/')}/{name}.py"],
                depends=[f"src/ottla/{package.replace('.', '/')}/{name}.pxd"],
            )
            for package, name in SINGLE
        ]
        + [
            Extension(f"ottla.protocol.{path.stem}", [str(path.with_suffix(".py"))], depends=codecs)
            for path in sorted(PROTOCOL.glob("*.pxd"))
        ]
        + [
            Extension(f"ottla.serde.{path.stem}", [str(path.with_suffix(".py"))], depends=serde)
            for path in sorted(SERDE.glob("*.pxd"))
            if path.with_suffix(".py").exists()
        ],
        build_dir="build/cython",
        compiler_directives=DIRECTIVES,
        nthreads=JOBS if JOBS > 1 else 0,
        quiet=True,
    )
    for module in modules:
        module.extra_compile_args = FLAGS + (SERDE_FLAGS if module.name.startswith("ottla.serde.") else [])
    # The largest first, so that no core is idle while the last one compiles.
    return sorted(modules, key=lambda module: -Path(module.sources[0]).stat().st_size)


if __name__ == "__main__":  # the processes that translate may import this file
    setup(
        # A source archive has no translations.
        ext_modules=[] if "sdist" in sys.argv else extensions(),
        cmdclass={"build_ext": BuildAllOrNone, "sdist": ReproducibleArchive},
        options={"build_ext": {"parallel": JOBS}},
    )
