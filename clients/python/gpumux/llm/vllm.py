"""vLLM's own server, within the slot's memory and on all of its GPUs.

Owns what vLLM is told of the slot. Settings are the flags of `vllm serve` by their names, with underscores. Ran with vLLM 0.32 on a CPU.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import uvloop
from pydantic import ValidationError
from vllm.entrypoints.launchers.api_server.app_state import init_app_state
from vllm.entrypoints.launchers.api_server.entry import build_async_engine_client
from vllm.entrypoints.launchers.app import build_app
from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.envs import enable_envs_cache
from vllm.platforms import current_platform
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.utils.gc_utils import freeze_gc_heap

import gpumux

from .served import Served
from .stats import Stats

MARGIN = 1 << 30
"""vLLM counts neither its CUDA context nor what NCCL holds: room for those, on each GPU, in bytes."""


# The loop of vLLM's own server.
asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())


class Engine:
    def __init__(self, model: str, settings: dict) -> None:
        gpus = len(os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(","))
        own = {"tensor_parallel_size": gpus}
        share = utilization(gpumux.slot().memory, gpus, current_platform.get_device_total_memory())
        if share is not None:
            own["gpu_memory_utilization"] = share
        self._args = parsed({**own, **settings, "model": model})
        self.most = 0

    async def start(self) -> None:
        self._context = build_async_engine_client(self._args)
        try:
            self._client = await self._context.__aenter__()
        except ValidationError as error:
            raise ValueError("settings: " + "; ".join(each["msg"] for each in error.errors())) from error
        self._stats, manager = Stats(), getattr(self._client, "logger_manager", None)
        if manager is None:  # disable_log_stats
            self.load = dict
        else:
            manager.stat_loggers = [self._stats]
        tasks = await self._client.get_supported_tasks()
        app = build_app(self._args, tasks, self._client.model_config)
        await init_app_state(self._client, app.state, self._args, tasks)
        self.answer = Served(app).answer
        enable_envs_cache()
        freeze_gc_heap()  # as the server's start does, which nothing calls here
        # So many run at a time; the next ones wait inside, so that none of its steps lacks one.
        self.most = self._client.vllm_config.scheduler_config.max_num_seqs * 5 // 4

    async def stop(self) -> None:
        await self._context.__aexit__(None, None, None)

    def dead(self) -> bool:
        return self._client.errored

    def load(self) -> dict:
        return self._stats.load()


def parsed(settings: dict) -> Any:
    """The arguments of `vllm serve`, by its own parser."""
    parser = make_arg_parser(FlexibleArgumentParser(prog="vllm serve", exit_on_error=False))
    parser.error = _raise
    words = []
    for name, value in settings.items():
        flag = "--" + name.replace("_", "-")
        takes = parser._option_string_actions.get(flag)
        if isinstance(value, bool):
            words.append(flag if value else "--no-" + flag[2:])
        elif isinstance(value, list) and takes is not None and takes.nargs in ("+", "*"):
            words += [flag, *map(str, value)]
        else:
            words += [flag, value if isinstance(value, str) else json.dumps(value)]
    args = parser.parse_args(words)
    validate_parsed_serve_args(args)
    return args


def _raise(message: str) -> None:
    raise ValueError(f"settings: {message}; they are the flags of `vllm serve`, with underscores and without the dashes before them")


def utilization(budget: int | None, gpus: int, total: int) -> float | None:
    """The gpu_memory_utilization that keeps within the slot's budget, None without one."""
    if budget is None:
        return None
    share = (budget / gpus - MARGIN) / total
    if share <= 0:
        raise ValueError(f"a budget of {budget >> 20} MiB leaves nothing beside {MARGIN >> 20} MiB per GPU that vLLM does not count: give more --memory")
    return round(min(share, 0.95), 3)
