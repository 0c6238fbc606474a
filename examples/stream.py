"""Reading a stream with Python's own library: one event per line that begins with `data: `."""

import json
import urllib.request

body = {"prompt": "Once upon a time", "max_tokens": 40, "seed": 7, "stream": True}
request = urllib.request.Request(
    "http://127.0.0.1:8000/v1/completions",
    json.dumps(body).encode(),
    {"content-type": "application/json", "authorization": "Bearer none"},
)
with urllib.request.urlopen(request) as answer:
    for line in answer:
        data = line.decode().removeprefix("data: ").strip()
        if not line.startswith(b"data: ") or data == "[DONE]":
            continue
        event = json.loads(data)
        if "error" in event:
            raise SystemExit(event["error"]["message"])
        for choice in event["choices"]:
            print(choice["text"], end="", flush=True)
print()
