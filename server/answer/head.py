"""The fields that begin every answer and every chunk of a stream. Knows no route."""

import time
import uuid
from typing import Any


def answer_head(
    *, id_prefix: str, object_: str, model: str, fingerprint: str, separator: str = "-"
) -> dict[str, Any]:
    """`model`: the name that the request gave it. `separator`: behind the prefix of the id."""
    return {
        "id": f"{id_prefix}{separator}{uuid.uuid4().hex}",
        "object": object_,
        "created": int(time.time()),
        "model": model,
        "system_fingerprint": fingerprint,
    }
