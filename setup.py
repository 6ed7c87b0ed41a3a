"""Builds the compiled record kernels, which are optional: without a compiler or Cython plain Python serves.

Everything else about the package stands in pyproject.toml.
"""

from pathlib import Path

from setuptools import Extension, setup

RECORDS = Path("src/ottla/records")
# Each with a fallback in plain Python beside it.
KERNELS = ("_kernels", "_encode_columns", "_decode_columns", "_survey")
PRODUCER = Path("src/ottla/clients/producer")  # its accumulator.py is both, and compiled under another name
PROTOCOL = Path("src/ottla/protocol")
CODECS = ("_shapes", "_decoding", "_encoding")  # their fallback is source that `compiler` writes
SERDE = Path("src/ottla/serde")  # plain Python and C in one


def extensions() -> list[Extension]:
    """The kernels as extensions that may fail to build, or nothing without Cython."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    declarations = [str(path) for path in sorted(RECORDS.glob("*.pxd"))]
    codecs = [str(path) for path in sorted(PROTOCOL.glob("*.pxd"))]
    serde = [str(path) for path in sorted(SERDE.glob("*.pxd"))]
    modules: list[Extension] = cythonize(
        [
            Extension(f"ottla.records.{name}", [str(RECORDS / f"{name}.py")], depends=declarations)
            for name in KERNELS
            if (RECORDS / f"{name}.py").exists()
        ]
        + [
            Extension(
                "ottla.clients.producer._accumulator",
                [str(PRODUCER / "accumulator.py")],
                depends=[str(PRODUCER / "_accumulator.pxd")],
            )
        ]
        + [Extension(f"ottla.protocol.{name}", [str(PROTOCOL / f"{name}.py")], depends=codecs) for name in CODECS]
        + [
            Extension(f"ottla.serde.{path.stem}", [str(path.with_suffix(".py"))], depends=serde)
            for path in sorted(SERDE.glob("*.pxd"))
            if path.with_suffix(".py").exists()
        ],
        build_dir="build/cython",
        quiet=True,
    )
    for module in modules:
        module.optional = True  # cythonize() loses what it was given
    return modules


setup(ext_modules=extensions())
