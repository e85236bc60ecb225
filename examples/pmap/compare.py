"""Run the ways with gpumux and compare: python compare.py [way …]. Exits with 1 where a sum is wrong."""

import json
import subprocess
import sys

import numpy as np

WAYS = sys.argv[1:] or ["serial", "replicated", "sharded", "slots"]
TASKS = "examples/pmap/pmap.py:"
LOCAL = ["--local", "--python", sys.executable, "--quiet"]


def gpumux(*words):
    done = subprocess.run(["bin/gpumux", *words], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main():
    found = {}
    for way in WAYS:
        words = ["--range", "0:1"]
        if way == "slots":
            words = ["--range", "0:4", "--slots", "4", "--option", "chunk=1"]
        task = TASKS + ("shard" if way == "slots" else way)
        found[way] = [value(each) for each in gpumux("map", task, *words, "--out", "-", *LOCAL)]

    right = sum(((np.arange(n * 65536, (n + 1) * 65536) % 1000 / 1000) ** 2).sum() for n in range(32))
    wrong = 0
    print(f"{'way':<12} {'processes':>9} {'sum':>11} {'inputs per device':>18} {'arguments':>10} {'output':>7} {'temporary':>10} {'inputs per process':>19}")
    for way, parts in found.items():
        total = sum(part["sum"] for part in parts)
        share = 32 * 65536 * 4 / len(parts)
        bad = abs(total - right) > 1e-5 * right or any(sum(part["held"].values()) > share for part in parts if len(parts) > 1)
        wrong += bad
        held = [bytes for part in parts for bytes in part["held"].values()]
        most = max(parts, key=lambda part: part["temporary"])
        whole = max(sum(part["held"].values()) for part in parts)
        print(
            f"{way:<12} {len({part['pid'] for part in parts}):>9} {total:>11.1f} {mib(max(held)):>18} {mib(most['arguments']):>10} "
            f"{most['output']:>6}B {mib(most['temporary']):>10} {mib(whole):>19}{'  WRONG' if bad else ''}"
        )
    print(f"NumPy, in 64 bits: {right:.1f}; allowed: 1e-5 of it")
    return 1 if wrong else 0


def value(result):
    if "fault" in result:
        sys.exit(result["fault"]["message"])
    return result["value"]


def mib(size):
    return f"{size / 2**20:.2f}MiB"


if __name__ == "__main__":
    sys.exit(main())
