"""Authentication for a vLLM server: every request must carry the key. vLLM's own check covers the paths under /v1 only.

vllm serve ... --middleware trainyard_worker.authentication.AuthenticationMiddleware     key in TRAINYARD_SERVER_KEY
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
App = Callable[[Message, Any, Callable[[Message], Awaitable[None]]], Awaitable[None]]


class AuthenticationMiddleware:
    """ASGI middleware."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._wanted = f"Bearer {os.environ['TRAINYARD_SERVER_KEY']}".encode()

    async def __call__(self, scope: Message, receive: Any, send: Callable[[Message], Awaitable[None]]) -> None:
        """Pass on requests that carry the key, and health checks."""
        headers: dict[bytes, bytes] = dict(scope.get("headers", []))
        is_free = scope["type"] == "lifespan" or scope.get("path") == "/health"
        if is_free or hmac.compare_digest(headers.get(b"authorization", b""), self._wanted):
            await self._app(scope, receive, send)
            return
        if scope["type"] == "http":
            kind = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 401, "headers": kind})
            await send({"type": "http.response.body", "body": b'{"error": "This server needs its API key."}'})
