"""Records as text: format strings, JSON lines, and escaping for terminals. Bytes in, bytes out.

Reading order: escaping, template (format strings as kcat and rpk have them), record_writer and record_reader (records
by a template, out and in), json_lines, record_lines (for people).
"""
