"""Request and response models of the wire, one module per family of routes."""
