"""How records look as text: format strings, JSON lines and what a terminal may see. Bytes in, bytes out, no I/O.

Reading order: escaping (nothing in a record plays with a terminal), template (format strings as rpk and kcat have
them), writing and reading (records out and in by a template), json_lines, people (the layout for terminals).
"""
