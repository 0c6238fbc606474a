"""Connections, and what applies to every request on them.

Owns HTTP/1.1 itself (`protocol`, `framing`, `connection_table`, `slow_readers`), the boundary
around the application (`boundary`, `auth`, `cors`, `hosts`, `path_aliases`) and bodies
(`json_body`, `body_size`, `large_bodies`). Knows no route and no engine.
"""
