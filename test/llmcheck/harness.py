"""What the checks of gpumux llm share: requests, commands, a server with a worker, and the rows that came of them."""

import glob
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import psutil

GPUMUX, FOLDER = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
CHAT, TEXT, RESPONSES, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"
# A CPU without these instructions takes many times as long for bfloat16.
with open("/proc/cpuinfo") as cpu:
    DTYPE = "bfloat16" if re.search(r"avx512_bf16|amx_bf16", cpu.read()) else "float32"
SETTINGS = {"dtype": DTYPE, "enforce_eager": True, "max_model_len": 512, "gpu_memory_utilization": 0.3}
ENVIRONMENT = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}


def said(text):
    return [{"role": "user", "content": text}]


def request(name, body, url=CHAT, **more):
    return {"custom_id": name, "method": "POST", "url": url, "body": body, **more}


def every_kind():
    """Requests of every kind that vLLM's server takes for a model that generates, good and bad."""
    brief = {"max_tokens": 12, "temperature": 0}
    rows = [request(f"chat {i}", {"messages": said(f"who asks question {i}"), **brief}) for i in range(24)]
    rows += [request(f"text {i}", {"prompt": f"the answer {i}", **brief}, TEXT) for i in range(8)]
    rows += [request(f"response {i}", {"input": f"tell me {i}", "max_output_tokens": 12, "temperature": 0}, RESPONSES) for i in range(4)]
    bodies = {
        "several": {"n": 2, "temperature": 1.0, "seed": 3},
        "logprobs": {"logprobs": True, "top_logprobs": 2},
        "stop": {"stop": ["a", "e", "o"], "max_tokens": 40},
        "stop tokens": {"stop_token_ids": [7, 300], "max_tokens": 40},
        "seed": {"temperature": 1.0, "seed": 11},
        "schema": {"max_tokens": 60, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {
            "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}}},
        "limit": {"max_completion_tokens": 3},
        "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "seven slots"}, {"type": "text", "text": "one device"}]}]},
        "tools": {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]},
        "template": {"chat_template_kwargs": {"thinking": False}},
        "no end": {"ignore_eos": True, "max_tokens": 100},
        "penalties": {"presence_penalty": 1.0, "frequency_penalty": 0.5, "min_p": 0.1, "top_k": 20},
        "too long": {"messages": said("why " * 3000)},
        "no number": {"temperature": "warm"},
        "below zero": {"temperature": -1},
        "no messages": {"messages": None},
        "nothing to say": {"messages": []},
        "other model": {"model": "gpt-4o-mini"},
        "too many": {"max_tokens": 100000},
    }
    rows += [request(name, {"messages": said("who asks whom"), **brief, **body}) for name, body in bodies.items()]
    rows += [request("no endpoint", {"input": "a"}, "/v1/nothing"), request("embedding", {"input": "a"}, EMBEDDINGS)]
    rows += [request("text, several", {"prompt": ["one", "two"], **brief}, TEXT), request("text, echo", {"prompt": "one", "echo": True, **brief}, TEXT)]
    return rows


def many(count, longest):
    chance = random.Random(5)
    lengths = [16] if longest == 16 else [4, 8, 16, 16, 32, 64, 128, longest]
    body = lambda i: {"messages": said(f"who asks question {i}"), "max_tokens": chance.choice(lengths), "temperature": 0, "ignore_eos": longest > 16}
    return [request(f"r{i}", body(i)) for i in range(count)]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def flags(settings):
    return [word for key, value in settings.items() for word in ("--setting", f"{key}={json.dumps(value)}")]


def serve_flags(model, settings):
    words = ["--model", model]
    for key, value in settings.items():
        words += ["--" + key.replace("_", "-")] + ([] if value is True else [str(value)])
    return words

WORKER = """
pools: [{{name: cpu, devices: cpu, slots: 1}}]
store: file://{store}
tasks:
  llm: {{python: "gpumux.llm:Model", interpreter: {python}, env: {{VLLM_CPU_KVCACHE_SPACE: "1", HF_HUB_OFFLINE: "1"}}}}
"""


class Check(unittest.TestCase):
    maxDiff = None
    limit = 900  # seconds that a command may take

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="llmcheck-")
        self.environment = {**ENVIRONMENT, "XDG_STATE_HOME": os.path.join(self.dir, "state")}
        self.out = os.path.join(self.dir, "out.jsonl")

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, rows, name="in.jsonl"):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        return self.path(name)

    def command(self, file, *more, model="tiny", settings=SETTINGS, out=None):
        return [GPUMUX, "llm", file, "--model", os.path.join(FOLDER, model), "--local", "--python", sys.executable, "--out", out or self.out,
                *flags({**settings, "served_model_name": [model]}), *more]

    def start(self, *words):
        with open(self.path("log"), "ab") as log:
            process = psutil.Popen(words, stdout=log, stderr=log, env=self.environment, cwd=self.dir)
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(60)

    def run_to_end(self, *words):
        done = subprocess.run(words, capture_output=True, text=True, env=self.environment, cwd=self.dir, timeout=self.limit)
        return done.returncode, done.stdout + done.stderr

    def serve(self, name):
        """A server, and a worker with the task llm."""
        port = free_port()
        with open(self.path("worker.yaml"), "w", encoding="utf-8") as to:
            to.write(WORKER.format(store=self.path("store"), python=sys.executable))
        server = self.start(GPUMUX, "dev", "--no-worker", "--headless", "--port", port, "--data", self.path("data-" + name))
        self.wait_for("the server", lambda: "Ctrl-C stops" in self.log())
        self.environment.update(TEMPORAL_ADDRESS="127.0.0.1:" + port, GPUMUX_STORE="file://" + self.path("store"))
        return server, self.start(GPUMUX, "worker", "-f", self.path("worker.yaml"))

    def log(self):
        with open(self.path("log"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def rows(self):
        with open(self.out, encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def wait_for(self, what, holds, seconds=240):
        end = time.monotonic() + seconds
        while not holds():
            self.assertLess(time.monotonic(), end, f"{what} did not come to be:\n{self.log()[-3000:]}")
            time.sleep(0.2)

    def written(self):
        """Rows that the map has given so far."""
        found = glob.glob(os.path.join(glob.escape(self.dir), ".gpumux-*"))
        if not found:
            return []
        with open(found[0], encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.endswith("\n")]
