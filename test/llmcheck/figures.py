"""The same requests by LLM.chat, by run-batch and as a whole map, each with its engine loaded; figures are printed and never judged."""

import json
import os
import random
import re
import sys
import time

from harness import Check, FOLDER, GPUMUX, SETTINGS, flags, many, request, said, serve_flags

BARE = """
import json, sys, time
from vllm import LLM, SamplingParams
if __name__ == "__main__":
    llm = LLM(model=sys.argv[1], **json.loads(sys.argv[2]))
    bodies = [json.loads(line)["body"] for line in open(sys.argv[3])]
    params = [SamplingParams(max_tokens=b["max_tokens"], temperature=0, ignore_eos=b["ignore_eos"]) for b in bodies]
    llm.chat([b["messages"] for b in bodies[:20]], params[:20], use_tqdm=False)
    began = time.time()
    llm.chat([b["messages"] for b in bodies], params, use_tqdm=False)
    print("took", time.time() - began)
"""


class Figures(Check):
    """The same requests by LLM.chat, by run-batch and as a whole map, each with its engine loaded."""

    count = int(os.environ.get("COUNT", 2000))
    limit = max(Check.limit, count // 2)

    def test_figures(self):
        for model, longest in (("tiny", 16), ("small", 16), ("small", 256)):
            file = self.write(many(self.count, longest), "many.jsonl")
            folder = os.path.join(FOLDER, model)
            code, output = self.run_to_end(sys.executable, "-c", BARE, folder, json.dumps(SETTINGS), file)
            self.assertEqual(code, 0, output)
            bare_seconds = float(re.search(r"^took (.*)$", output, re.M)[1])
            code, output = self.run_to_end(sys.executable, "-W", "ignore", "-m", "vllm.entrypoints.openai.run_batch", "-i", file, "-o", self.path("batch.jsonl"),
                                           *serve_flags(folder, {**SETTINGS, "served_model_name": model}))
            self.assertEqual(code, 0, output)
            batch_seconds = self.count / float(re.search(r"100% Completed.* ([\d.]+)req/s", output)[1])
            (map_seconds,) = self.warm(model, [file])
            print(f"{self.count:,} requests of at most {longest} tokens, model {model}: LLM.chat {bare_seconds:.1f} s, run-batch {batch_seconds:.1f} s, a whole map {map_seconds:.1f} s", flush=True)

    def test_order(self):
        """Requests with 60 beginnings, of which the engine's prefix cache has room for some 20."""
        chance = random.Random(3)
        words = "who asks what the answer is when seven slots share one device and nobody waits for memory".split()
        beginnings = [" ".join(chance.choice(words) for _ in range(150)) for _ in range(60)]
        rows = [request(f"r{i} {n}", {"messages": [{"role": "system", "content": text}, *said(f"question {i}")], "max_tokens": 4, "temperature": 0})
                for i in range(12) for n, text in enumerate(beginnings)]
        chance.shuffle(rows)
        alike = sorted(rows, key=lambda row: json.dumps(row["body"]["messages"]))
        shuffled, next_to_each_other = self.warm("small", [self.write(rows, "shuffled.jsonl"), self.write(alike, "alike.jsonl")],
                                                 max_model_len=1024, max_num_seqs=16, num_gpu_blocks_override=120)
        print(f"720 requests with 60 beginnings: shuffled {shuffled:.1f} s, next to each other {next_to_each_other:.1f} s", flush=True)

    def warm(self, model, files, **more):
        """The seconds of a whole map over each file, with the engine loaded."""
        server, worker = self.serve(model)
        command = lambda file: [GPUMUX, "llm", file, "--model", os.path.join(FOLDER, model), "--pool", "cpu", "--out", self.out, "--id", f"m{time.time_ns()}",
                                *flags({**SETTINGS, "served_model_name": [model], **more})]
        code, output = self.run_to_end(*command(self.write(many(20, 16), "few.jsonl")))
        self.assertEqual(code, 0, output)
        seconds = []
        for file in files:
            began = time.monotonic()
            code, output = self.run_to_end(*command(file))
            seconds.append(time.monotonic() - began)
            self.assertEqual(code, 0, output)
        self.end(worker)
        self.end(server)
        os.remove(self.path("log"))
        return seconds
