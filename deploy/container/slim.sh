#!/bin/sh
# Makes an installation smaller: strips debug symbols, and deletes files that only compilers and tests use.
#
#     slim.sh DIRECTORY
set -eu
find "$1" -type d \( -name tests -o -name __pycache__ \) -path '*/site-packages/*' -prune -exec rm -rf {} +
find "$1" -path '*/site-packages/*' \( -name '*.pxd' -o -name '*.pyx' -o -name '*.c' -o -name '*.h' \) -delete
find "$1" -name '*.so' -exec strip --strip-unneeded {} +
