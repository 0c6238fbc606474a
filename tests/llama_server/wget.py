"""Their module of this name fetches models from the internet, for tests that are not run here."""
