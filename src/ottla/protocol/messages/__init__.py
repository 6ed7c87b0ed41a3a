"""One file per API: its request, its response and their nested structs, in all versions.

`ottla.protocol.registry` finds them by API key.
"""
