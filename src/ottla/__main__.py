"""`ottla`, and `python -m ottla`: the command, found in such a way that Ctrl-C during its imports ends it quietly."""

import sys


def main() -> int:
    """Run the command; returns the exit code."""
    try:
        from ottla.cli.main import main as run  # noqa: PLC0415 - Ctrl-C may arrive here

        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
