"""The commands of the command line, one module each; `server/__main__.py` chooses."""
