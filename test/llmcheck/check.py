"""gpumux llm against a real vLLM on this machine's CPU: python check.py GPUMUX FOLDER, with what fetch.sh has put into the folder.

What vLLM's own server answers is what has to come out; processes are killed as they are elsewhere; figures are printed and never judged.
"""

import json
import os
import re
import signal
import sys
import time
import unittest
import urllib.error
import urllib.request

import psutil

from figures import Figures  # noqa: F401  unittest.main takes it from here
from harness import CHAT, Check, EMBEDDINGS, FOLDER, GPUMUX, SETTINGS, every_kind, flags, free_port, many, request, said, serve_flags


class Parity(Check):
    def served(self, rows, *words):
        """What vLLM's own server answers."""
        port = free_port()
        server = self.start(sys.executable, "-W", "ignore", "-m", "vllm.entrypoints.launchers.api_server.entry", "--host", "127.0.0.1", "--port", port, *words)
        address = "http://127.0.0.1:" + port

        def ask(url, body=None):
            try:
                with urllib.request.urlopen(urllib.request.Request(address + url, body, {"Content-Type": "application/json"})) as answer:
                    return answer.status, answer.read()
            except urllib.error.HTTPError as error:
                return error.code, error.read()
            except urllib.error.URLError:
                return 0, b""

        self.wait_for("the server", lambda: server.poll() is not None or ask("/health")[0] == 200)
        answers = [ask(row["url"], json.dumps(row["body"]).encode()) for row in rows]
        self.end(server)
        return [(status, json.loads(content)) for status, content in answers]

    def compare(self, rows, answers):
        for row, (status, body), result in zip(rows, answers, self.rows()):
            with self.subTest(row["custom_id"]):
                self.assertEqual(result["custom_id"], row["custom_id"])
                self.assertIsNone(result["error"])
                response = result["response"]
                self.assertEqual(response["status_code"], status)
                if status == 200:
                    self.assertEqual(bare(response["body"]), bare(body))
                elif "error" in body:
                    message = " ".join(str(body["error"]["message"]).split())
                    self.assertEqual(response["body"]["error"]["message"], message)
                    self.assertEqual(response["body"]["error"]["type"], body["error"]["type"])

    def test_a_model_that_generates(self):
        rows = every_kind()
        name = {"served_model_name": "tiny"}
        answers = self.served(rows, *serve_flags(os.path.join(FOLDER, "tiny"), {**SETTINGS, **name}))
        odd = [request("unknown", {"messages": said("a"), "frobnicate": 1}), {"custom_id": "no request"}, request("get", {}, method="GET"),
               request("stream", {"messages": said("a"), "stream": True})]
        code, output = self.run_to_end(*self.command(self.write(rows + odd)))
        self.assertEqual(code, 1, output)
        self.compare(rows, answers)
        results = self.rows()
        self.assertEqual([each["response"]["status_code"] for each in results[len(rows):]], [400] * 4)
        self.assertIn("has no frobnicate, and would ignore it; it has ", results[len(rows)]["response"]["body"]["error"]["message"])
        good = sum(status == 200 for status, _ in answers)
        print(f"{len(rows)} requests of every kind, of which {good} succeed", flush=True)

    def test_an_adapter(self):
        rows = {name: [request(f"{name} {i}", {"messages": said(f"who asks question {i}"), "max_tokens": 12, "temperature": 0, "model": name})
                       for i in range(4)] for name in ("tiny", "mine", "nobody")}
        settings = {**SETTINGS, "enable_lora": True, "max_lora_rank": 8, "served_model_name": "tiny"}
        adapter = "mine=" + self.adapter(os.path.join(FOLDER, "tiny"))
        answers = self.served(sum(rows.values(), []), *serve_flags(os.path.join(FOLDER, "tiny"), settings), "--lora-modules", adapter)
        self.assertEqual([status for status, _ in answers], [200] * 8 + [404] * 4)
        said_by = [body["choices"][0]["message"]["content"] for _, body in answers[:8]]
        self.assertFalse(set(said_by[:4]) & set(said_by[4:]), "the adapter changes nothing")
        # Without those for the model itself: on CPUs vLLM 0.32 gives them the adapter of others beside them.
        there = rows["mine"] + rows["nobody"]
        code, output = self.run_to_end(*self.command(self.write(there), settings={**settings, "lora_modules": [adapter]}))
        self.assertEqual(code, 1, output)
        self.compare(there, answers[4:])

    def adapter(self, model):
        """The folder of a LoRA adapter with random weights."""
        import torch
        from safetensors.torch import save_file

        with open(os.path.join(model, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        torch.manual_seed(1)
        width, name = config["hidden_size"], "base_model.model.model.layers.{}.self_attn.o_proj.lora_{}.weight"
        weights = {name.format(i, side): torch.randn(shape) for i in range(config["num_hidden_layers"]) for side, shape in (("A", (8, width)), ("B", (width, 8)))}
        os.mkdir(self.path("adapter"))
        save_file(weights, self.path("adapter/adapter_model.safetensors"))
        with open(self.path("adapter/adapter_config.json"), "w", encoding="utf-8") as to:
            json.dump({"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["o_proj"], "bias": "none", "task_type": "CAUSAL_LM"}, to)
        return self.path("adapter")

    def test_a_model_that_embeds(self):
        rows = [request(f"e{i}", {"input": f"seven slots {i}"}, EMBEDDINGS) for i in range(6)]
        settings = {**SETTINGS, "dtype": "float32", "runner": "pooling", "convert": "embed"}
        answers = self.served(rows, *serve_flags(os.path.join(FOLDER, "tiny"), {**settings, "served_model_name": "tiny"}))
        self.assertEqual({status for status, _ in answers}, {200})
        code, output = self.run_to_end(*self.command(self.write(rows), settings=settings))
        self.assertEqual(code, 0, output)
        for result, (_, body) in zip(self.rows(), answers):
            here, there = (each["data"][0]["embedding"] for each in (result["response"]["body"], body))
            self.assertEqual(len(here), len(there))
            self.assertLess(max(abs(a - b) for a, b in zip(here, there)), 1e-2)


def bare(body):
    """A response without its identity and its time."""
    if isinstance(body, list):
        return [bare(each) for each in body]
    if isinstance(body, dict):
        return {key: bare(value) for key, value in body.items() if key not in ("id", "created", "created_at", "completed_at", "request_id")}
    return body


class Kills(Check):
    def begin(self, *more):
        self.file = self.write(many(600, 256))
        process = self.start(*self.command(self.file, "-v", *more, model="small"))
        self.wait_for("100 rows", lambda: process.poll() is not None or len(self.written()) >= 100)
        return process

    def finish(self, before, moment):
        rows = self.rows()
        self.assertEqual([row["custom_id"] for row in rows], [f"r{i}" for i in range(600)])
        self.assertEqual({row["response"]["status_code"] for row in rows}, {200})
        kept = [row["custom_id"] for row in rows if row["response"]["body"]["created"] <= moment]
        self.assertLessEqual({row["custom_id"] for row in before}, set(kept), "a row that was written has run again")

    def test_a_process_of_the_engine(self):
        for name in ("VLLM::EngineCore", "VLLM::Worker"):
            with self.subTest(name):
                process = self.begin()
                victim = [each for each in process.children(recursive=True) if name in " ".join(each.cmdline())]
                self.assertEqual(len(victim), 1)
                before, moment = self.written(), time.time()
                victim[0].kill()
                self.assertEqual(process.wait(300), 0, self.log()[-3000:])
                self.finish(before, moment)
                self.assertEqual(self.log().count("task process ready"), 2, "starts of the engine")
                os.remove(self.path("log"))
                os.remove(self.out)

    def test_the_command(self):
        for how in (signal.SIGKILL, signal.SIGINT):
            with self.subTest(how):
                process = self.begin()
                before, moment = self.written(), time.time()
                process.send_signal(how)
                process.wait(60)
                code, output = self.run_to_end(*self.command(self.file, model="small"))
                self.assertEqual(code, 0, output)
                self.finish(before, moment)
                self.assertFalse([each for each in psutil.process_iter(["cmdline"]) if "VLLM::" in " ".join(each.info["cmdline"] or [])])
                os.remove(self.out)


class Timeouts(Check):
    def test_a_request_that_takes_too_long(self):
        rows = many(40, 16)
        rows[20]["body"].update(max_tokens=1900, ignore_eos=True)
        code, output = self.run_to_end(*self.command(self.write(rows), "-v", "--timeout", "8s", model="small", settings={**SETTINGS, "max_model_len": 2048}))
        self.assertEqual(code, 1, output)
        late, *others = sorted(self.rows(), key=lambda row: row["custom_id"] != "r20")
        self.assertEqual(late["error"]["code"], "timeout")
        self.assertEqual({row["response"]["status_code"] for row in others}, {200})
        self.assertEqual(output.count("task process ready"), 1, "starts of the engine")


class Starts(Check):
    def fails(self, code, words, *more, **options):
        began = time.monotonic()
        status, output = self.run_to_end(*self.command(self.write(many(20, 16)), *more, **options))
        self.assertEqual(status, code, output)
        last = output.strip().split("\n")[-1]
        self.assertRegex(last, words)
        print(f"{time.monotonic() - began:.0f} s: {last[:300]}", flush=True)

    def test_a_budget_that_is_too_small(self):
        self.fails(4, r"budget in slot .* give the pool memory: \S+ or more", "--memory", "1280MiB")
        self.fails(2, "a budget of 900 MiB leaves nothing .* give more --memory", "--memory", "900MiB")

    def test_a_model_that_is_not_there(self):
        self.fails(2, "(nowhere|snapshot|repository|model)", model="nowhere")

    def test_a_setting_that_is_none(self):
        self.fails(2, "unrecognized arguments: --enforce-eagerly", settings={"enforce_eagerly": True})

    def test_a_context_beyond_the_model(self):
        self.fails(2, "settings: .*max_model_len", settings={**SETTINGS, "max_model_len": 100000})

    def test_memory_that_is_not_there(self):
        code, output = self.run_to_end(*self.command(self.write(many(20, 16)), settings={**SETTINGS, "gpu_memory_utilization": 1.0}))
        if code != 0:  # else this machine has so much
            self.assertRegex(output.strip().split("\n")[-1], "Engine core initialization failed.*: ValueError: .*memory")


class Batches(Check):
    """OpenAI's own client and `gpumux batches`, whose rows are those of `gpumux llm` on the same file."""

    def test_rows(self):
        import openai

        model = os.path.join(FOLDER, "tiny")
        rows = [row for row in every_kind() if row["url"] == CHAT]
        for row in rows:
            row["body"].setdefault("model", model)
        file = self.write([row for row in rows if row["body"]["model"] == model])
        settings = {**SETTINGS, "served_model_name": [model]}
        self.serve("batches")
        code, output = self.run_to_end(GPUMUX, "llm", file, "--model", model, "--pool", "cpu", "--out", self.out, *flags(settings))
        self.assertEqual(code, 1, output)
        self.start(GPUMUX, "batches", "--model", model, "--pool", "cpu", "--listen", "127.0.0.1:0", *flags(settings))
        self.wait_for("the interface", lambda: "base_url" in self.log())
        client = openai.OpenAI(base_url=re.search(r"base_url +(\S+)", self.log())[1], api_key="none")
        with open(file, "rb") as source:
            uploaded = client.files.create(file=source, purpose="batch")
        batch = client.batches.create(input_file_id=uploaded.id, endpoint=CHAT, completion_window="24h")
        self.wait_for("the end", lambda: client.batches.retrieve(batch.id).status in ("completed", "failed"))
        batch = client.batches.retrieve(batch.id)
        self.assertEqual(batch.status, "completed", batch)
        good, bad = ([json.loads(line) for line in client.files.content(id).text.splitlines()] for id in (batch.output_file_id, batch.error_file_id))
        self.assertEqual({row["response"]["status_code"] for row in good}, {200})
        self.assertNotIn(200, {row["response"]["status_code"] for row in bad})
        sort = lambda rows: sorted(map(bare, rows), key=lambda row: row["custom_id"])
        self.assertEqual(sort(good + bad), sort(self.rows()))
        print(f"{len(good)} rows with an answer and {len(bad)} with an error, as of gpumux llm", flush=True)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[3:]])
