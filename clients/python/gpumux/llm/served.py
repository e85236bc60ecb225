"""The server of an engine, called in this process in place of a socket.

Owns the way into an ASGI application of FastAPI. Never changes what it answers, but refuses fields that its server would ignore.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from typing import Any, Callable, NamedTuple

from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter
from starlette.requests import Request

from . import Refused


class _Route(NamedTuple):
    """The function behind a URL, called without what surrounds it: middleware costs half as much as the rest of a short request."""

    function: Callable[..., Any]
    body: str
    request: str
    type: TypeAdapter
    fields: frozenset[str]


class Served:
    def __init__(self, app: Any) -> None:
        self._app = app
        self._routes = {route.path: found for route in app.routes if (found := _route(route))}

    async def answer(self, url: str, body: dict) -> tuple[int, bytes]:
        route = self._routes.get(url)
        if route is None:
            return await post(self._app, url, body)
        unknown = sorted(set(body) - route.fields)
        if unknown:
            known = ", ".join(sorted(route.fields))
            raise Refused(f"400 UnknownField: the engine's POST {url} has no {', '.join(unknown)}, and would ignore it; it has {known}")
        try:
            given = route.type.validate_python(body)
            scope = _scope(url, b"")
            response = await route.function(**{route.body: given, route.request: Request({**scope, "app": self._app})})
            return response.status_code, response.body
        except Exception:
            # The whole server says what is wrong, in its own words.
            return await post(self._app, url, body)


def _route(route: Any) -> _Route | None:
    """What to call for a URL whose function takes a model and the request alone."""
    if not isinstance(route, APIRoute) or "POST" not in route.methods or route.body_field is None:
        return None
    needs = route.dependant
    kind = route.body_field.field_info.annotation
    models = [each for each in (kind, *getattr(kind, "__args__", ())) if isinstance(each, type) and issubclass(each, BaseModel)]
    others = needs.path_params or needs.query_params or needs.header_params or needs.cookie_params
    if len(needs.body_params) != 1 or not needs.request_param_name or others or not models:
        return None
    fields = {name for model in models for key, field in model.model_fields.items() for name in (key, field.alias or key)}
    return _Route(inspect.unwrap(route.endpoint), needs.body_params[0].name, needs.request_param_name, TypeAdapter(kind), frozenset(fields))


def _scope(url: str, content: bytes) -> dict:
    headers = {b"host": b"gpumux", b"content-type": b"application/json", b"content-length": str(len(content)).encode()}
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http", "path": url,
        "raw_path": url.encode(), "query_string": b"", "root_path": "", "client": None, "server": None, "headers": list(headers.items()),
    }


async def post(app: Any, url: str, body: dict) -> tuple[int, bytes]:
    """Give a request to an ASGI application; status and content of its response."""
    content = json.dumps(body).encode()
    status, parts = 500, []
    given = iter([{"type": "http.request", "body": content, "more_body": False}])

    async def receive() -> dict:
        for message in given:
            return message
        await asyncio.Event().wait()  # nobody hangs up
        raise AssertionError

    async def send(message: dict) -> None:
        nonlocal status
        status = message.get("status", status)
        parts.append(message.get("body", b""))

    await app(_scope(url, content), receive, send)
    return status, b"".join(parts)
