"""The fields that begin every answer and every chunk of a stream. Knows no route."""

import time
import uuid
from typing import Any


def answer_head(
    *,
    id_prefix: str,
    object_: str,
    model: str,
    fingerprint: str,
    replica: str,
    separator: str = "-",
) -> dict[str, Any]:
    """`model`: the name that the request gave it. `replica`: what the digits of the id begin with,
    by which a cluster finds who keeps the answer. `separator`: behind the prefix of the id.
    """
    return {
        "id": f"{id_prefix}{separator}{replica}{uuid.uuid4().hex[len(replica) :]}",
        "object": object_,
        "created": int(time.time()),
        "model": model,
        "system_fingerprint": fingerprint,
    }
