"""Builds the compiled record kernels, which are optional: without a compiler or Cython plain Python serves.

Everything else about the package stands in pyproject.toml.
"""

from pathlib import Path

from setuptools import Extension, setup

ROOM = Path("src/ottla/records")
KERNELS = ("_kernels",)


def extensions() -> list[Extension]:
    """The kernels as extensions that may fail to build, or nothing without Cython."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    sources = [ROOM / f"{name}.py" for name in KERNELS]
    modules: list[Extension] = cythonize(
        [
            Extension(f"ottla.records.{source.stem}", [str(source)], depends=[str(source.with_suffix(".pxd"))])
            for source in sources
        ],
        build_dir="build/cython",
        quiet=True,
    )
    for module in modules:
        module.optional = True  # cythonize() loses what it was given
    return modules


setup(ext_modules=extensions())
