#!/bin/sh
# A streamed completion with the two most probable tokens at each place, then a chat.
set -eu
url=http://127.0.0.1:8000/v1

curl --fail --silent --no-buffer "$url/completions" \
    --header 'content-type: application/json' \
    --header 'authorization: Bearer none' \
    --data '{"prompt": "Once upon a time", "max_tokens": 8, "seed": 7, "logprobs": 2, "stream": true}'

curl --fail --silent "$url/chat/completions" \
    --header 'content-type: application/json' \
    --header 'authorization: Bearer none' \
    --data '{"messages": [{"role": "user", "content": "Hello!"}], "max_completion_tokens": 20, "seed": 7}'
