"""Formats and file dumps for programs that work on records and logs without a broker.

`formats/` converts records to text and back: format strings as kcat and rpk have them, and JSON lines.
`dump/` reads the files of a log as rows. The `ottla` command and the tests use both.
"""
