"""Train in the worker's pool and a longer one in a slot that is too small for it. Exits with 1 where a loss is not that of a plain run."""

import gc
import json
import re
import subprocess
import sys
import time
import urllib.request

from train import train

FOLDER = "examples/cleanup/"
LOCAL = ["--local", "--slots", "1", "--memory", "64MiB", "--python", sys.executable]
SEEDS = 16
ALLOWED = 1e-9
"""Of a loss: NumPy adds in another order where an array begins at another address."""


def metrics():
    """The worker's metrics by name and pool."""
    address = re.search(r"metrics: (\S+)", open(FOLDER + "gpumux.yaml").read())[1]
    text = urllib.request.urlopen(f"http://{address}/metrics").read().decode()
    found = {}
    for name, labels, value in re.findall(r"^gpumux_(\w+)\{(.*)\} (\S+)$", text, re.M):
        pool = re.search(r'pool="(\w+)"', labels)
        if pool:
            kind = re.search(r'(?:kind|reason)="(\w+)"', labels)
            found[name, pool[1], kind[1] if kind else None] = float(value)
    return found


def gpumux(*words):
    """The results of a map, and how long it took."""
    start = time.monotonic()
    done = subprocess.run(["bin/gpumux", "map", *words, "--out", "-", "--quiet"], stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1):
        sys.exit(done.returncode)
    return [json.loads(line) for line in done.stdout.splitlines()], time.monotonic() - start


def main():
    gc.enable()
    plain = [train(seed) for seed in range(SEEDS)]
    before = metrics()
    results, took = gpumux("train", "--pool", "early", "--range", f"0:{SEEDS}")
    after = metrics()
    replaced, ended = (int(after[name, "early", kind] - before[name, "early", kind]) for name, kind in (("recycles_total", "full"), ("faults_total", "budget")))
    rows = [("early", took, replaced, ended, after["peak_bytes", "early", None], results, SEEDS)]
    results, took = gpumux(FOLDER + "train.py:long", "--range", "0:1", *LOCAL)
    faults = [r["fault"] for r in results if r.get("fault", {}).get("kind") == "budget"]
    rows.append(("long", took, 0, sum(f["attempts"] for f in faults), max((f["peak"] for f in faults), default=0), results, 0))
    wrong = len(faults) < len(results)
    if wrong:
        print(f"a long training did not end with the fault budget: {results}")

    print(f"{'pool':<6} {'time':>6} {'replaced':>9} {'over budget':>12} {'peak':>8}  losses")
    for pool, took, replaced, ended, peak, results, expected in rows:
        right = sum("value" in r and close(r["value"], plain[r["index"]]) for r in results)
        wrong += right != expected
        print(
            f"{pool:<6} {took:>5.1f}s {replaced:>9} {ended:>12} {mib(peak):>8}  {right} of {len(results)}"
            f"{'  WRONG' if right != expected else ''}"
        )
    print(f"losses: how many are those of a plain run, to {ALLOWED:g}. That of seed 0 went from {plain[0][0]:.3f} to {plain[0][1]:.3f}")
    return 1 if wrong else 0


def close(losses, expected):
    return all(abs(a - b) <= ALLOWED * b for a, b in zip(losses, expected))


def mib(size):
    return f"{size / 2**20:.0f}MiB"


if __name__ == "__main__":
    sys.exit(main())
