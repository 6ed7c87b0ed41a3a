"""JSON and Avro values to columns in Arrow's layout, and columns to values. Needs no pyarrow.

This package imports only `common`, neither pyarrow nor Spark. A decoder takes the buffers of a binary column
(`ByteRows`) and fills builders. It returns `Column`s, whose buffers are ready for `pyarrow.Array.from_buffers`, and
reports which values did not fit and why. An encoder takes the buffers of columns (`ColumnView`) and returns a binary
column. A schema is parsed once and becomes a plan. Nothing here does I/O or keeps state between calls.

Each kernel has one source: plain Python, with its C types in a `.pxd` file beside it. Cython compiles the source to an
extension; without the extension, the same source runs as Python, only slower.
"""
