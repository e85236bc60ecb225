"""The server of an engine, called in this process in place of a socket.

Owns the way into an ASGI application of FastAPI. Never changes what it answers, but refuses fields that its server would ignore.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from typing import Any, Callable, Iterator, NamedTuple

from fastapi import routing
from fastapi.encoders import jsonable_encoder
from pydantic import BaseModel, TypeAdapter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

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
        # Newer versions of FastAPI keep the routes of a router in it.
        routes = getattr(routing, "iter_route_contexts", iter)(app.routes)
        self._routes = {route.path: found for route in routes if (found := _route(route))}

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
        except Exception:
            # The whole server says what is wrong, in its own words.
            return await post(self._app, url, body)
        request = Request({**_scope(url, b""), "app": self._app})
        try:
            response = await route.function(**{route.body: given, route.request: request})
        except Exception as error:
            handlers = self._app.exception_handlers
            handler = next((handlers[kind] for kind in type(error).__mro__ if kind in handlers), None)
            if handler is None:
                raise
            response = handler(request, error)
            response = await response if inspect.isawaitable(response) else response
        if not isinstance(response, Response):
            response = JSONResponse(jsonable_encoder(response))
        if isinstance(response, StreamingResponse):
            return response.status_code, b"".join([bytes(part) async for part in response.body_iterator])
        return response.status_code, response.body


def _route(route: Any) -> _Route | None:
    """What to call for a URL whose async function takes a model and the request alone."""
    field, needs = getattr(route, "body_field", None), getattr(route, "dependant", None)
    if field is None or needs is None or "POST" not in route.methods:
        return None
    kind, function = field.field_info.annotation, inspect.unwrap(route.endpoint)
    models = [each for each in (kind, *getattr(kind, "__args__", ())) if isinstance(each, type) and issubclass(each, BaseModel)]
    takes = [needs.request_param_name, *(each.name for each in needs.body_params)]
    if not models or len(takes) != 2 or {*takes} != {*inspect.signature(function).parameters} or not inspect.iscoroutinefunction(function):
        return None
    return _Route(function, takes[1], takes[0], TypeAdapter(kind), frozenset(name for model in models for name in _names(model)))


def _names(model: type[BaseModel]) -> Iterator[str]:
    """The names that a model takes for its fields; pydantic ignores the others."""
    by_name = model.model_config.get("populate_by_name") or model.model_config.get("validate_by_name")
    for name, field in model.model_fields.items():
        other = field.validation_alias
        if other is None or by_name:
            yield name
        for each in getattr(other, "choices", [other]):
            if isinstance(each, str):
                yield each


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
