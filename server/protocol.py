"""HTTP/1.1 on a socket: uvicorn's protocol, which answers what is no HTTP in the error envelope."""

import json

import h11
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

from .errors import RequestError, error_body


class HttpProtocol(H11Protocol):
    """One connection."""

    @override
    def send_400_response(self, msg: str) -> None:
        error = RequestError("the request is not valid HTTP", code="invalid_http")
        body = json.dumps(error_body(error)).encode("ascii")
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode("ascii")),
            (b"connection", b"close"),
        ]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
