"""llama.cpp's own server, on the CPU, which batches what runs at the same time.

Owns nothing of the slot. Settings: parallel (how many run at the same time, default 8), max_model_len (tokens of each, default 4096) and
threads (default 1: those of llama.cpp wait for each other in a loop). The model is a GGUF file. The package xllamacpp opens a port on
127.0.0.1, which nothing here uses. Ran with xllamacpp 2026.10.
"""

from __future__ import annotations

import asyncio
import json
import os
from concurrent.futures import ThreadPoolExecutor

import xllamacpp

from . import Refused

_SETTINGS = {"parallel": 8, "max_model_len": 4096, "threads": 1}


class Engine:
    def __init__(self, model: str, settings: dict) -> None:
        unknown = sorted(set(settings) - set(_SETTINGS))
        if unknown:
            raise ValueError(f"settings: llama has no {', '.join(unknown)}; it has {', '.join(_SETTINGS)}")
        if not os.path.isfile(model):
            raise FileNotFoundError(f"there is no file {model} in {os.getcwd()}; llama loads a GGUF file")
        told = {**_SETTINGS, **settings}
        params = xllamacpp.CommonParams()
        params.model.path, params.n_parallel = model, told["parallel"]
        params.n_ctx = told["parallel"] * told["max_model_len"]
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = told["threads"]
        params.verbosity = 1  # errors; the rest would be the items' output
        self._params, self._name = params, os.path.basename(model)
        # A request waits in a thread.
        self.most = 2 * told["parallel"]
        self._threads = ThreadPoolExecutor(self.most)

    async def start(self) -> None:
        self._server = xllamacpp.Server(self._params)
        self._ways = {
            "/v1/chat/completions": self._server.handle_chat_completions,
            "/v1/completions": self._server.handle_completions,
        }

    async def stop(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    def dead(self) -> bool:
        return False  # it dies with the process

    async def answer(self, url: str, body: dict) -> tuple[int, bytes]:
        way = self._ways.get(url)
        if way is None:
            return 404, b"{}"
        try:
            answer = await asyncio.get_running_loop().run_in_executor(self._threads, way, dict(body))
        except ValueError as error:
            raise Refused(f"400 invalid_request_error: {error}") from None
        if "error" in answer:
            return answer["error"].get("code", 500), json.dumps(answer).encode()
        answer.pop("timings", None)
        return 200, json.dumps({**answer, "model": self._name}).encode()
