"""engine_vllm.py against a stand-in for vLLM, which has the names and arguments that the engine uses."""

import asyncio
import os
import subprocess
import sys
import types
import unittest
from types import SimpleNamespace

import gpumux

GIB = 1 << 30


class SamplingParams:
    def __init__(self, max_tokens, output_kind, temperature=1.0, n=1, stop=None):
        if temperature < 0:
            raise ValueError("temperature must be non-negative")
        self.max_tokens, self.n = max_tokens, n


class AsyncEngineArgs:
    def __init__(self, **given):
        self.given = given


class Tokenizer:
    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        return " ".join(message["content"] for message in messages)

    def encode(self, text, add_special_tokens):
        return text.split()


class AsyncLLM:
    full = False

    @classmethod
    def from_engine_args(cls, args):
        if cls.full:
            raise RuntimeError("Engine core initialization failed. See root cause above.")
        self = cls()
        self.given, self.errored, self.ids = args.given, False, []
        self.model_config = SimpleNamespace(max_model_len=args.given.get("max_model_len", 8))
        return self

    def get_tokenizer(self):
        return Tokenizer()

    async def generate(self, prompt, sampling_params, request_id):
        self.ids.append(request_id)
        tokens = prompt["prompt_token_ids"]
        if "kill" in tokens:
            self.errored = True
        if self.errored:
            raise RuntimeError("EngineCore encountered an issue")
        await asyncio.sleep(0)
        said = tokens[: sampling_params.max_tokens]
        one = SimpleNamespace(index=0, text=" ".join(said), token_ids=said, finish_reason="stop")
        yield SimpleNamespace(outputs=[one] * sampling_params.n)


def module(name, **names):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(names)


module("vllm", SamplingParams=SamplingParams)
module("vllm.engine")
module("vllm.engine.arg_utils", AsyncEngineArgs=AsyncEngineArgs)
module("vllm.platforms", current_platform=SimpleNamespace(get_device_total_memory=lambda: 80 * GIB))
module("vllm.sampling_params", RequestOutputKind=SimpleNamespace(FINAL_ONLY=2))
module("vllm.v1")
module("vllm.v1.engine")
module("vllm.v1.engine.async_llm", AsyncLLM=AsyncLLM)

import complete  # noqa: E402


def request(content, **body):
    return {"custom_id": "a", "method": "POST", "url": complete.URL, "body": {"messages": [{"role": "user", "content": content}], **body}}


def task(memory=None, gpus="GPU-1", **settings):
    gpumux._slot = gpumux.Slot("llm/0", gpus, memory, "persistent", "complete")
    gpumux._arg[:] = [{"model": "m", **settings}]
    os.environ["CUDA_VISIBLE_DEVICES"] = gpus
    return complete.Complete()


class TestEngine(unittest.TestCase):
    def test_takes_the_slots_memory_and_gpus(self):
        given = task(41 * GIB).engine._engine.given
        self.assertEqual((given["gpu_memory_utilization"], given["tensor_parallel_size"]), (0.5, 1))
        given = task(164 * GIB, "GPU-1,GPU-2,GPU-3,GPU-4", max_num_seqs=7).engine._engine.given
        self.assertEqual((given["gpu_memory_utilization"], given["tensor_parallel_size"], given["max_num_seqs"]), (0.5, 4, 7))
        self.assertNotIn("gpu_memory_utilization", task().engine._engine.given)
        self.assertEqual(task(41 * GIB, gpu_memory_utilization=0.4).engine._engine.given["gpu_memory_utilization"], 0.4)
        with self.assertRaisesRegex(ValueError, "leaves nothing .* raise the pool's memory"):
            task(GIB)

    def test_answers_and_refuses(self):
        complete_ = task()

        async def both():
            return await asyncio.gather(complete_(request("one two three", max_tokens=2, n=2)), complete_(request("four")))

        first, second = asyncio.run(both())
        self.assertEqual([choice["message"]["content"] for choice in first["choices"]], ["one two"] * 2)
        self.assertEqual(first["usage"], {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7})
        self.assertEqual(second["choices"][0]["finish_reason"], "stop")
        self.assertEqual(len(set(complete_.engine._engine.ids)), 2)
        for wrong, why in (
            (request("w " * 8), "the prompt has 8 tokens, and the model's context 8"),
            (request("w", temperature=-1), "non-negative"),
            (request("w", stream=True), "no streams"),
            (request("w", messages=[]), "no list of messages"),
            ({**request("w"), "url": "/v1/embeddings"}, "not POST /v1/embeddings"),
            ("text", "no request"),
        ):
            with self.subTest(why):
                with self.assertRaisesRegex(complete.Refused, why):
                    asyncio.run(complete_(wrong))

    def test_a_start_that_fails_names_the_setting(self):
        AsyncLLM.full = True
        self.addCleanup(setattr, AsyncLLM, "full", False)
        with self.assertRaisesRegex(RuntimeError, "gpu_memory_utilization=0.5: Engine core .* raise the pool's memory"):
            task(41 * GIB)

    def test_a_dead_engine_ends_the_process(self):
        dead = subprocess.run([sys.executable, __file__, "dead"], capture_output=True, text=True)
        self.assertEqual(dead.returncode, 70, dead.stderr)
        self.assertIn("the engine is dead", dead.stderr)


if __name__ == "__main__":
    if sys.argv[1:] == ["dead"]:
        asyncio.run(task()(request("kill")))
    unittest.main()
