"""Names of TabbyAPI that have no other wing: what is loaded, by its words, and what could be.

Everything here can be read and nothing changed: a server has the model that it was started with.
Read `route`, then `errors`.
"""
