"""Maps the detector in the clients of gpumux.yaml: its scores beside NumPy's, its latency beside the worker's histogram.

python latency.py [address of the metrics]. Exits with 1 where they do not agree.
"""

import json
import math
import re
import subprocess
import sys
import time
import urllib.request

import numpy as np
from detect import image, weights

ITEMS, SLOTS = 60, 3
ALLOWED = 1e-5  # of the largest score: 32 bits beside 64
ADDRESS = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9464"


def main():
    before = scrape()
    began = time.monotonic()
    map = ["map", "detect", "--range", f"0:{ITEMS}", "--pool", "clients", "--out", "-", "--quiet"]
    done = subprocess.run(["bin/gpumux", *map], stdout=subprocess.PIPE, text=True, check=True)
    wall = time.monotonic() - began
    values = [json.loads(line)["value"] for line in done.stdout.splitlines()]
    after = scrape()

    worst = max(difference(number, value["scores"]) for number, value in enumerate(values))
    wrong = worst > ALLOWED
    verdict = f"{worst:.1e} of the largest beside NumPy's in 64 bits; allowed: {ALLOWED:.0e}{'  WRONG' if wrong else ''}"
    print(f"scores of {len(values)} images: {verdict}")

    took = sorted(value["seconds"] for value in values)
    histogram = {name: after[name] - before.get(name, 0) for name in after}
    bad = histogram["count"] != ITEMS or not sum(took) <= histogram["sum"] <= wall * SLOTS
    print(f"gpumux_item_seconds: {histogram['count']:.0f} items, {histogram['sum']:.2f}s; the results: {len(took)} items, {sum(took):.2f}s")
    for part in (0.5, 0.9, 0.99):
        low, high, value = quantile(histogram, part)
        own = took[math.ceil(part * ITEMS) - 1]
        bad = bad or own > high
        print(f"p{part * 100:.0f}  {value * 1000:7.1f}ms  between {low * 1000:g}ms and {high * 1000:g}ms; the results: {own * 1000:.1f}ms")
    if bad:
        print("the histogram is WRONG")
    return 1 if wrong or bad else 0


def difference(number, scores):
    """How far scores are from those of a convolution that is written another way, in 64 bits."""
    kernels, head = weights()
    x = image(number).astype(np.float64)
    for kernel in kernels:
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))[:, ::2, ::2]
        places = np.asarray(kernel, np.float64).reshape(3, 3, len(kernel[0]), -1)
        x = np.maximum(np.tensordot(places, windows, axes=([0, 1, 3], [3, 4, 0])), 0)
    right = np.tensordot(head.astype(np.float64), x, axes=1).max(axis=(1, 2))
    return np.abs(np.asarray(scores) - right).max() / np.abs(right).max()


def scrape():
    """The histogram of the pool: its cumulative buckets by their upper ends, count and sum."""
    with urllib.request.urlopen(f"http://{ADDRESS}/metrics") as answer:
        text = answer.read().decode()
    found = {float(le): float(n) for le, n in re.findall(r'gpumux_item_seconds_bucket\{pool="clients",le="([^"]+)"\} (\S+)', text)}
    for name in ("count", "sum"):
        found[name] = sum(float(n) for n in re.findall(rf'gpumux_item_seconds_{name}{{pool="clients"}} (\S+)', text))
    return found


def quantile(histogram, part):
    """The ends of the bucket that a quantile lies in and a value between them, as Prometheus' histogram_quantile has it."""
    rank, low, below = part * histogram["count"], 0.0, 0.0
    for high in sorted(end for end in histogram if isinstance(end, float)):
        if histogram[high] >= rank:
            return low, high, low + (high - low) * (rank - below) / (histogram[high] - below)
        low, below = high, histogram[high]
    raise ValueError("the histogram is empty")


if __name__ == "__main__":
    sys.exit(main())
