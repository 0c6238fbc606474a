"""How a server process ends, and how it logs.

Owns the graceful end (`drain`), the end that nothing can delay (`last_resort`) and the logs.
"""
