"""All tests. A regular package, so that no installed package `tests` is imported in its place."""
