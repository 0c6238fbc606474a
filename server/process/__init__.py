"""How a server process starts, reports and ends.

Owns the graceful end (`drain`), the end that nothing can hold up (`last_resort`) and the logs.
"""
