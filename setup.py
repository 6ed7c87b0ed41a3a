"""Builds the compiled record kernels, which are optional: without a compiler or Cython plain Python serves.

Everything else about the package stands in pyproject.toml.
"""

from pathlib import Path

from setuptools import Extension, setup

KERNELS = Path("src/ottla/records/_kernels.py")
DECLARATIONS = KERNELS.with_suffix(".pxd")


def extensions() -> list[Extension]:
    """The kernels as an extension that may fail to build, or nothing without Cython."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    modules: list[Extension] = cythonize(
        [Extension("ottla.records._kernels", [str(KERNELS)], depends=[str(DECLARATIONS)])],
        build_dir="build/cython",
        quiet=True,
    )
    for module in modules:
        module.optional = True  # cythonize() loses what it was given
    return modules


setup(ext_modules=extensions())
