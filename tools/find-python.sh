#!/bin/sh
# Prints the path of a Python that can run Ottla: version 3.11 or newer, able to create virtual environments.
#
#   sh tools/find-python.sh            the one in .venv, else python3, else python3.13, 3.12, 3.11, 3.14, else pyenv's
#   sh tools/find-python.sh PYTHON     this one, or an error
#
# With no suitable Python it says which ones it found and what to install, and exits with 1. It runs nothing but the
# candidates themselves, so that it works wherever there is a shell.

oldest_minor=11
probe='import sys
try: import ensurepip, venv
except ImportError: able = "no-venv"
else: able = "venv"
print("%d %d %s" % (sys.version_info[0], sys.version_info[1], able))'
found=''

# Succeeds if $1 can be used; otherwise adds to `found` why not. pyenv has commands for versions that are not selected:
# they are on the PATH and only print an error, so each candidate is run.
suitable() {
    path=$(command -v "$1" 2>/dev/null) || return 1
    answer=$("$path" -c "$probe" 2>/dev/null) || return 1
    set -- $answer
    if [ "$1" -eq 3 ] && [ "$2" -ge $oldest_minor ] || [ "$1" -gt 3 ]; then
        [ "$3" = venv ] && return 0
        found="$found
  $path is Python $1.$2, but cannot create virtual environments (Debian, Ubuntu: apt install python$1.$2-venv)"
    else
        found="$found
  $path is Python $1.$2"
    fi
    return 1
}

if [ -n "$1" ]; then
    if suitable "$1"; then
        echo "$path"
        exit 0
    fi
    {
        echo "Ottla needs Python 3.$oldest_minor or newer. PYTHON=$1 cannot be used:${found:- it does not run}"
        echo "Leave PYTHON out to let make choose, or name another one: make run PYTHON=/path/to/python3.12"
    } >&2
    exit 1
fi

cd "${0%/*}/.." || exit 1
for candidate in "$PWD/.venv/bin/python" python3 python3.13 python3.12 python3.11 python3.14 \
    "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[1-9]*/bin/python3; do
    if suitable "$candidate"; then
        echo "$path"
        exit 0
    fi
done
{
    echo "Ottla needs Python 3.$oldest_minor or newer, and there is none on the PATH.${found:+ Found:$found}"
    echo "Install one (Debian, Ubuntu: apt install python3.12 python3.12-venv; or: pyenv install 3.12;"
    echo "or: uv python install 3.12) and run make again, or name it: make run PYTHON=/path/to/python3.12"
} >&2
exit 1
