"""Offline inference: one request of an OpenAI batch file in, the body of its response out.

    {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": […], "max_tokens": 64}}

The engine is loaded once per process and has up to 256 requests in flight, which it batches by itself.
"""

import os
import sys

import gpumux

URL = "/v1/chat/completions"


class Refused(ValueError):
    """A request that cannot work. It costs its own row."""


class Complete:
    """The task. The map's --arg says what to load, such as {"model": "Qwen/Qwen3-8B", "max_model_len": 8192}."""

    def __init__(self):
        settings = gpumux.arg() or {}
        self.engine = _load(settings.get("engine"), settings)

    @gpumux.concurrent(max=256)
    async def __call__(self, request):
        body = _body(request)
        try:
            return await self.engine.chat(body)
        except Exception as error:
            if self.engine.dead():
                _end(error)
            raise


def _load(name, settings):
    """The engine that settings name, or the first of these that is installed; the imitation never comes by itself."""
    for engine in [name] if name else ["vllm", "llama"]:
        try:
            if engine == "vllm":
                import engine_vllm as module
            elif engine == "llama":
                import engine_llama as module
            elif engine == "imitation":
                import engine_imitation as module
            else:
                raise ValueError(f"there is no engine {engine!r}; write vllm, llama or imitation")
        except ModuleNotFoundError:
            if name:
                raise
            continue
        return module.Engine(settings)
    raise ModuleNotFoundError(
        "no engine is installed for this Python: install vllm, or `pip install --no-deps -r examples/llm/requirements.txt`, "
        "or try the example without a model: --arg with {\"engine\": \"imitation\"}"
    )


def _body(request):
    """The body of a request, checked as far as every engine needs it."""
    if not isinstance(request, dict) or not isinstance(request.get("body"), dict):
        raise Refused("the line is no request: it needs custom_id, method, url and body")
    if request.get("method", "POST") != "POST" or request.get("url") != URL:
        raise Refused(f"this task answers POST {URL}, not {request.get('method')} {request.get('url')}")
    body = request["body"]
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) and "role" in m for m in messages):
        raise Refused("body.messages is no list of messages with a role and a content")
    if body.get("stream"):
        raise Refused("a batch has no streams; leave body.stream out")
    return body


def _end(error):
    """End this process, whose engine is dead: all that it has in flight runs again in a new one. An exception would fail them."""
    print(f"the engine is dead, and this process ends with it: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    os._exit(70)
