"""vLLM's AsyncLLM, within the slot's memory and on all of its GPUs.

Written for vLLM 0.33, from its sources; it has not run with it, or on a GPU, yet. Settings other than engine and margin go to
AsyncEngineArgs as they are: {"model": "Qwen/Qwen3-8B", "max_model_len": 8192}.
"""

import itertools
import os

from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM

import gpumux
from complete import Refused

SAMPLING = ("temperature", "top_p", "top_k", "min_p", "n", "stop", "seed", "presence_penalty", "frequency_penalty", "repetition_penalty")


class Engine:
    def __init__(self, settings):
        settings = {name: value for name, value in settings.items() if name != "engine"}
        if "model" not in settings:
            raise ValueError('vLLM needs a model: --arg with {"model": "Qwen/Qwen3-8B"}')
        self._model = settings["model"]
        gpus = len(os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(","))
        settings.setdefault("tensor_parallel_size", gpus)
        share = utilization(gpumux.slot().memory, gpus, current_platform.get_device_total_memory(), settings.pop("margin", 1 << 30))
        if share is not None:
            settings.setdefault("gpu_memory_utilization", share)
        settings.setdefault("disable_log_stats", True)
        try:
            self._engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**settings))
        except Exception as error:
            raise RuntimeError(advice(error, settings)) from error
        self._tokenizer = self._engine.get_tokenizer()
        self._context = self._engine.model_config.max_model_len
        self._count = itertools.count()

    def dead(self):
        return self._engine.errored

    async def chat(self, body):
        text = self._tokenizer.apply_chat_template(body["messages"], tokenize=False, add_generation_prompt=True)
        tokens = self._tokenizer.encode(text, add_special_tokens=False)
        room = self._context - len(tokens)
        if room < 1:
            raise Refused(f"the prompt has {len(tokens)} tokens, and the model's context {self._context}: shorten it, or raise max_model_len")
        most = body.get("max_completion_tokens") or body.get("max_tokens") or room
        given = {name: body[name] for name in SAMPLING if body.get(name) is not None}
        try:
            params = SamplingParams(max_tokens=min(most, room), output_kind=RequestOutputKind.FINAL_ONLY, **given)
        except (TypeError, ValueError) as error:
            raise Refused(str(error)) from error
        last = None
        async for output in self._engine.generate({"prompt_token_ids": tokens}, params, f"gpumux-{next(self._count)}"):
            last = output
        said = sum(len(each.token_ids) for each in last.outputs)
        return {
            "object": "chat.completion",
            "model": self._model,
            "choices": [
                {"index": each.index, "message": {"role": "assistant", "content": each.text}, "finish_reason": each.finish_reason}
                for each in last.outputs
            ],
            "usage": {"prompt_tokens": len(tokens), "completion_tokens": said, "total_tokens": len(tokens) + said},
        }


def utilization(budget, gpus, total, margin):
    """The gpu_memory_utilization that keeps within the slot's budget, or None without one. vLLM does not count its CUDA context and what
    NCCL holds: margin is for those, on each GPU."""
    if budget is None:
        return None
    share = (budget / gpus - margin) / total
    if share <= 0:
        raise ValueError(f"a budget of {budget >> 20} MiB leaves nothing of {gpus} GPU(s) beside {margin >> 20} MiB for contexts: raise the pool's memory")
    return round(min(share, 0.95), 3)


def advice(error, settings):
    """What a start that failed says. vLLM's own process printed the cause before, which the fault has as its output."""
    share = settings.get("gpu_memory_utilization")
    return (
        f"vLLM did not start with gpu_memory_utilization={'its default' if share is None else share}: {error}. If memory ran out: raise the "
        "pool's memory (the worker's file), from which gpu_memory_utilization follows, or lower max_model_len in --arg, or use a smaller model"
    )
