"""Values to columns and back: what records hold in a schema's format, in Arrow's layout, without Arrow.

This room imports `common` alone: no pyarrow, no Spark. A decoder takes the buffers of a binary column (`ByteRows`) and
fills builders; it gives `Column`s, whose buffers are ready for `pyarrow.Array.from_buffers`, and tells which values did
not fit and why. An encoder takes the buffers of columns (`ColumnView`) and gives a binary column. Schemas are read once
and made into plans; nothing here does I/O or holds state between calls.

Each kernel is one source, plain Python with its C types in a `.pxd` beside it: an extension where it was built, and the
same at Python's speed where not.
"""
