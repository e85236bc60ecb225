"""The server of `transformers serve`, in one process and on one device.

Owns what it is told of the slot, and refuses fields that it would ignore. Settings are its flags by their names, with underscores. With
continuous_batching it samples all requests as the first one asks. Ran with transformers 5.19 on a CPU.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.cli.serve import Serve

import gpumux

from . import CHAT, Refused
from .served import Served


class _Server(Serve):
    def start_server(self) -> None:
        """Nothing listens."""


class Engine:
    def __init__(self, model: str, settings: dict) -> None:
        budget, batches = gpumux.slot().memory, bool(settings.get("continuous_batching"))
        if batches and budget is not None and torch.cuda.is_available():
            # It takes its share of what is free on the whole device.
            settings = {"cb_max_memory_percent": round(0.8 * min(1, budget / torch.cuda.mem_get_info()[1]), 3), **settings}
        self._model, self._settings = model, settings
        self.most = 256 if batches else 1

    async def start(self) -> None:
        server: Any = _Server(force_model=self._model, non_blocking=True, **self._settings)
        self._server, self._served = server, Served(server.server.config.app)
        handlers = {CHAT: server._chat_handler, "/v1/completions": server._completion_handler, "/v1/responses": server._response_handler}
        self._ignored = {url: handler._unused_fields for url, handler in handlers.items()}

    async def stop(self) -> None:
        self._server._generation_state.shutdown()
        self._server.reset_loaded_models()

    def dead(self) -> bool:
        return not self._server._generation_state.is_cb_alive()

    async def answer(self, url: str, body: dict) -> tuple[int, bytes]:
        ignored = sorted(set(body) & set(self._ignored.get(url, ())))
        if ignored:
            raise Refused(f"400 UnknownField: transformers would ignore {', '.join(ignored)}; leave it out, or take another engine")
        return await self._served.answer(url, body)
