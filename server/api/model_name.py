"""The name of a model in the query of a GET, where other routes have it in their body."""

from typing import Annotated

from fastapi import Query

ModelName = Annotated[
    str | None, Query(description="A name that GET /v1/models lists; without it, the first one.")
]
