"""Measures the client beside the command: python bench.py. It needs the package gpumux and its command, as the wheel brings them, NumPy and
cloudpickle."""

import statistics
import subprocess
import sys
import tempfile
import time

import numpy

import gpumux

ITEMS, ROUNDS, CALLS = 100_000, 5, 500


def double(x):
    return x * 2


def look_up(row):
    return gpumux.arg()[row].sum()


def seconds(run):
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def main():
    from gpumux.client.command import find

    with tempfile.TemporaryDirectory() as folder:
        source = f"{folder}/items.jsonl"
        with open(source, "w") as out:
            out.writelines(f"{n}\n" for n in range(ITEMS))
        command = [find(), "map", f"{__file__}:double", "--in", source, "--local", "--slots", "2", "--python", sys.executable, "--quiet"]
        ratios = []
        for _ in range(ROUNDS):
            client = seconds(lambda: [None for _ in gpumux.map(double, [*range(ITEMS)], slots=2, progress=False)])
            ratios.append(client / seconds(lambda: subprocess.run([*command, "--out", f"{folder}/out.jsonl"], check=True)))
            print(f"{ITEMS:,} items: gpumux.map {client:.2f} s, {ratios[-1]:.2f} times the command line")
    print(f"median {statistics.median(ratios):.2f}")
    with gpumux.Executor(slots=2) as executor:
        print(f"Executor: the first result after {seconds(lambda: executor.submit(double, 1).result()):.2f} s", end="")
        each = statistics.median(seconds(lambda: executor.submit(double, 1).result()) for _ in range(CALLS))
        print(f", then {1000 * each:.2f} ms from submit to result (median of {CALLS})")
    index = numpy.zeros((200, 100_000))
    print(f"200 rows of an array of {index.nbytes / 1e6:.0f} MB", end="")
    for how, run in {
        "in a closure": lambda: list(gpumux.map(lambda row: index[row].sum(), range(200), slots=2, progress=False)),
        "as arg, with map": lambda: list(gpumux.map(look_up, range(200), slots=2, arg=index, progress=False)),
        "with stream": lambda: list(gpumux.stream(look_up, range(200), slots=2, arg=index, progress=False)),
    }.items():
        print(f", {how} {seconds(run):.2f} s", end="")
    print()


if __name__ == "__main__":
    main()
