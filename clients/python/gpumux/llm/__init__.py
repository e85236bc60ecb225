"""Language models: a request in OpenAI's form in, the body of its response out. `gpumux llm` runs it, and so does a map of
gpumux.llm:Model.

Owns the form of requests and faults, and the end of a process whose engine has died. Never reads or samples by itself: an engine's own
server does that, in this process and without a socket, so it takes and answers what it takes and answers elsewhere. Stops with the process.

The map's --arg says what to load:

    {"model": "Qwen/Qwen3-8B",              what the engine loads: a name on a hub, a folder or a file
     "engine": "vllm",                      vllm, transformers or llama; default: the first that is installed
     "settings": {"max_model_len": 8192},   the engine's own, by its own names
     "prompt": "Summarize: {text}",         items are rows in place of requests, and this is asked of each
     "request": {"temperature": 0}}         what each request has that does not say otherwise
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import string
import sys
from typing import Any, Protocol

from _string import formatter_field_name_split

import gpumux

from .meter import Meter

ENGINES = {"vllm": "vllm", "transformers": "transformers", "llama": "xllamacpp"}
"""The package that each engine needs."""

CHAT = "/v1/chat/completions"
URLS = (
    CHAT, "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/score", "/v1/rerank", "/v2/rerank", "/score", "/rerank", "/pooling", "/classify",
)
"""What a request may ask for. A server has more, which steers it."""
_FIELDS = {"model": str, "engine": str, "settings": dict, "prompt": str, "request": dict}


class Engine(Protocol):
    """What answers requests, made with the model's name and the settings, once per process.

    It may have load(), a dict of what it knows itself: the requests that are `running` and `waiting`; its `prompt_tokens` and
    `generation_tokens` so far; of its prefix cache `cache_queries` and `cache_hits`, tokens so far. Other numbers are reported as they are.
    """

    most: int
    """How many requests it wants at the same time, once it has started."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def dead(self) -> bool:
        """Whether no request will be answered any more."""

    async def answer(self, url: str, body: dict) -> tuple[int, bytes]:
        """HTTP's status of the response, and its content, which is JSON."""


class Refused(ValueError):
    """A request that the engine does not take, or that is none. It costs its own row."""


class Failed(RuntimeError):
    """The engine took a request and could not answer it."""


class Model:
    """The task. Its engine is loaded once per process, and batches by itself what it has in flight."""

    engine: Any = None
    """The class of an Engine of one's own, in a class made of this one."""
    model: str | None = None
    settings: dict | None = None
    """In a class made of this one: what --arg cannot change any more."""

    def __init__(self) -> None:
        told = self._told()
        self._prompt, self._request = told.get("prompt"), told.get("request") or {}
        if self._request.get("stream"):
            raise ValueError("request has stream, and a result comes whole; leave it out")
        try:
            list(_row.parse(self._prompt or ""))
        except ValueError as error:
            raise ValueError(f"prompt: {error}; write {{{{ and }}}} for braces that are text") from None
        make = self.engine or _engine(told.get("engine"))
        self._engine: Engine = make(told["model"], told.get("settings") or {})
        self._meter, self._requests = Meter(), 0

    def _told(self) -> dict:
        """The arg, checked, with what the class says itself."""
        told, name = gpumux.arg(), type(self).__name__
        if self.model is not None and isinstance(told or {}, dict):
            told = {"model": self.model, **(told or {})}
            if told["model"] != self.model or told.get("settings") or told.get("engine"):
                raise ValueError(f"{name} is {self.model!r} with settings of its own; give that as --model, and no --setting and no --engine")
            told["settings"] = self.settings
        elif self.settings is not None:
            raise ValueError(f"{name} has settings, and needs a model beside them")
        if not isinstance(told, dict) or not isinstance(told.get("model"), str):
            raise ValueError('name a model: gpumux llm --model NAME, or --arg with {"model": "Qwen/Qwen3-8B"}')
        unknown = sorted(set(told) - set(_FIELDS))
        if unknown:
            raise ValueError(f"--arg has {', '.join(unknown)}, and may have {', '.join(_FIELDS)}; what the engine takes goes into settings")
        for field, kind in _FIELDS.items():
            if not isinstance(told.get(field), (kind, type(None))):
                raise ValueError(f"--arg: {field} is {told[field]!r:.80}; give {'text' if kind is str else 'an object'}")
        if self.engine is not None and told.get("engine"):
            raise ValueError(f"{name} has an engine of its own; leave --engine out")
        return told

    async def __aenter__(self) -> Model:
        await self._engine.start()
        most = self._engine.most
        if isinstance(most, bool) or not isinstance(most, int) or most < 1:
            raise ValueError(f"the engine's most is {most!r}; give how many requests it takes at the same time")
        if type(self).__call__ is Model.__call__:
            Model.__call__.__gpumux_concurrent__ = most  # type: ignore[attr-defined]
        self._telling = asyncio.create_task(self._tell())
        return self

    async def __aexit__(self, *_: Any) -> None:
        self._telling.cancel()
        await self._engine.stop()

    async def _tell(self) -> None:
        """Report about once a second what the engine does, while it has requests."""
        load = getattr(self._engine, "load", dict)
        while True:
            await asyncio.sleep(1)
            if self._requests:
                try:
                    gpumux.progress(self._meter.look(self._requests, load()))
                except Exception as error:
                    print(f"the engine's load is not shown any more: {error!r}", file=sys.stderr, flush=True)
                    return

    @gpumux.concurrent(max=1)
    async def __call__(self, item: Any) -> Any:
        if self._prompt is None:
            return await self._answer(*requested(item))
        answer = await self._answer(CHAT, {"messages": [{"role": "user", "content": fill(self._prompt, item)}]})
        return columns(answer)

    async def _answer(self, url: str, body: dict) -> Any:
        self._requests += 1
        try:
            status, content = await self._engine.answer(url, {**self._request, **body})
            answer = judged(status, content, url)
            self._meter.answered(answer)
            return answer
        except Refused:
            raise
        except Exception as error:
            if self._engine.dead():
                # An exception would fail what is in flight. It runs again when the process ends.
                print(f"the engine is dead, and its process ends: {error}", file=sys.stderr, flush=True)
                os._exit(70)
            raise
        finally:
            self._requests -= 1


def _engine(name: str | None) -> Any:
    """The class of an engine, of the first that is installed without a name."""
    if name is not None and name not in ENGINES:
        raise ValueError(f"there is no engine {name!r}; write {' or '.join(ENGINES)}")
    for each in [name] if name else ENGINES:
        if importlib.util.find_spec(ENGINES[each]):
            return importlib.import_module("gpumux.llm." + each).Engine
    wanted = f"the engine {name} is not" if name else "no engine is"
    packages = ENGINES[name] if name else "vllm, transformers or xllamacpp"
    raise ModuleNotFoundError(f"{wanted} installed for {sys.executable}: install {packages} there, or give another Python by --python or venv")


def requested(item: Any) -> tuple[str, dict]:
    """URL and body of a line of a batch file."""
    if not isinstance(item, dict) or not isinstance(item.get("body"), dict) or not isinstance(item.get("url"), str):
        raise Refused('400 NoRequest: the line is no request: it needs "url", "body" and "custom_id"; rows of other forms need a prompt')
    if item.get("method", "POST") != "POST":
        raise Refused(f"400 NoRequest: its method is {item['method']!r}, and a batch has POST alone")
    if item["body"].get("stream"):
        raise Refused("400 NoRequest: a batch has no streams; leave body.stream out")
    if item["url"] not in URLS:
        raise Refused(f"404 NoRequest: a request is for one of {', '.join(URLS)}, not {item['url']}")
    return item["url"], item["body"]


class _Row(string.Formatter):
    """Puts a row into a prompt. What is no text or number is put as JSON, and null as nothing."""

    def get_field(self, name: str, args: Any, row: Any) -> Any:
        if isinstance(row, dict) and name in row:
            return row[name], name
        if name.isdigit():  # which {} is by now
            return row, name
        if not isinstance(row, dict):
            raise Refused(f"400 NoRequest: the prompt needs {name!r}, and the row is no object; {{}} stands for all of it")
        first, rest = formatter_field_name_split(name)
        try:
            value = row[first]
            for _, key in rest:
                value = value[key]
            return value, first
        except (KeyError, IndexError, TypeError):
            has = ", ".join(map(str, row))
            raise Refused(f"400 NoRequest: the prompt needs {name!r}, and the row has {has}; write {{{{ and }}}} for braces that are text") from None

    def format_field(self, value: Any, how: str) -> Any:
        if isinstance(value, (bool, dict, list)):
            value = json.dumps(value, ensure_ascii=False)
        return super().format_field("" if value is None else value, how)


_row = _Row()


def fill(prompt: str, row: Any) -> str:
    """The prompt with the row's fields in place of {names}, or the row itself in place of {}."""
    try:
        return _row.vformat(prompt, (), row)
    except (TypeError, ValueError) as error:
        raise error if isinstance(error, Refused) else Refused(f"400 NoRequest: the prompt does not fit the row: {error}") from None


def columns(answer: dict) -> dict:
    """What a table holds of a response to a chat."""
    choice, usage = answer["choices"][0], answer.get("usage") or {}
    return {
        "text": choice["message"].get("content"),
        "finish_reason": choice.get("finish_reason"),
        "prompt_tokens": usage.get("prompt_tokens"),
        "completion_tokens": usage.get("completion_tokens"),
    }


def judged(status: int, content: bytes, url: str) -> Any:
    """The body of a response, unless that is an error."""
    try:
        body = json.loads(content)
    except ValueError:
        body = None
    if status < 300 and body is not None:
        return body
    error = body if isinstance(body, dict) else {}
    error = error["error"] if isinstance(error.get("error"), dict) else error
    said = error.get("message") or error.get("detail") or content.decode("utf-8", "replace")[:500]
    kind = error.get("type") or "Error"
    if status in (404, 405) and "type" not in error:
        said = f"the engine has no POST {url} for this model"
    # A fault's message is one line.
    words = " ".join(f"{status} {kind}: {said}".split())
    raise (Refused if 400 <= status < 500 else Failed)(words)
