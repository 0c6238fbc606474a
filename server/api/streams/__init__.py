"""Routes under /v1/streams: kept streams, read, listed and forgotten. Knows no other route."""
