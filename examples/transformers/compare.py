"""Runs a task in a plain loop and in slots: python compare.py [embed | generate | FILE:CLASS]. --help lists the flags.

Exits with 1 where items fail or differ from the loop's by more than the task allows, with 2 where something needed is missing.
"""

import argparse
import collections
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
TASKS = {"embed": f"{HERE}/embed.py:Embed", "generate": f"{HERE}/generate.py:Generate"}
LINE = "{:<13} {:>5} {:>7} {:>6} {:>8} {:>8} {:>8} {:>7} {:>8} {:>8}"
TITLES = ("way", "slots", "items", "batch", "items/s", "of loop", "p50", "start", "in all/s", "peak")


def run(words, deadline, fine=(0,)):
    """A program's output and how long it took; it ends at the deadline."""
    began = time.monotonic()
    # In a session of its own, so that Ctrl-C reaches it once: from here.
    program = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, err = program.communicate(timeout=max(deadline - began, 0))
    except BaseException as cause:
        program.terminate()
        try:
            program.communicate(timeout=15)
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)
            program.communicate()
        if isinstance(cause, subprocess.TimeoutExpired):
            raise Failed("ended at --limit") from None
        raise
    took = time.monotonic() - began
    if program.returncode not in fine:
        reasons = [line for line in err.splitlines() if line.strip() and not line.startswith(("note:", "see "))]
        raise Failed("; ".join(line.strip() for line in reasons[-2:]) or f"exit status {program.returncode}")
    return out, took


class Failed(Exception):
    pass


def measured(results, wall, began, peak, auto=False):
    """A row of the table, of results with the times of their batches."""
    batches = collections.Counter((r["pid"], r["began"], r["ended"]) for r in results)
    ends = collections.defaultdict(list)
    for pid, _, ended in batches:
        ends[pid].append(ended)
    # Steady is from when each slot has ended its first batch until one has ended its last.
    start, end = max(map(min, ends.values())), min(map(max, ends.values()))
    note = ""
    if auto:  # slots come and go
        start, end = min(map(min, ends.values())), max(map(max, ends.values()))
        start, note = (start + end) / 2, "its last half"
    elif end <= start and len(batches) > 1:
        start, end, note = min(map(min, ends.values())), max(map(max, ends.values())), "too short for a steady state"
    done = sum(n * max(0, min(ended, end) - max(first, start)) / (ended - first) for (_, first, ended), n in batches.items())
    return {
        "slots": len(ends), "items": len(results), "batch": len(results) / len(batches),
        "itemsPerSecond": done / (end - start) if end > start else None,
        "latencyP50": statistics.median(ended - first for _, first, ended in batches),
        "start": min(first for _, first, _ in batches) - began, "wholeItemsPerSecond": len(results) / wall, "peak": peak, "note": note,
    }  # fmt: skip


def differing(results, right, about):
    """How many results are further from the loop's than allowed, and of how many that the loop has, too."""
    far = about["allowed"] * max(abs(x) for value in right.values() for x in value)
    pairs = [(r["value"]["value"], right[r["index"] % about["texts"]]) for r in results if r["index"] % about["texts"] in right]
    wrong = sum(len(a) != len(b) or any(not abs(x - y) <= far for x, y in zip(a, b)) for a, b in pairs)
    return {"differing": wrong, "compared": len(pairs), "wrong": wrong > about["differing"] * len(pairs)}


def show(row, loop):
    if "items" not in row:
        return f"{row['way']:<13} {row['note']}"
    rate = row["itemsPerSecond"]
    cells = [row["way"], row["slots"], row["items"], f"{row['batch']:.1f}", f"{rate:.1f}" if rate else "?"]
    cells += [f"{rate / loop:.0%}" if rate and loop else "?", f"{row['latencyP50'] * 1000:.1f}ms", f"{row['start']:.1f}s"]
    cells += [f"{row['wholeItemsPerSecond']:.1f}", f"{row['peak'] / 2**20:.0f}MiB" if row["peak"] else "-"]
    wrong = f"  WRONG: {row['differing']} of {row['compared']} differ" if row.get("wrong") else ""
    return LINE.format(*cells) + wrong + (f"  ({row['note']})" if row["note"] else "")


def main():
    flags = argparse.ArgumentParser(description=__doc__.partition("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    flags.add_argument("task", nargs="?", default="embed", help="embed, generate, or FILE:CLASS")
    flags.add_argument("--gpumux", default="bin/gpumux", help="the command")
    flags.add_argument("--python", default=sys.executable, help="the Python of the loop and the slots")
    flags.add_argument("--slots", default="1,2,4,8,auto", help="numbers of slots per device, and auto")
    flags.add_argument("--sharing", default="default,mps", help="ways to share the device")
    flags.add_argument("--seconds", type=float, default=10, help="how long the loop runs; each other way gets as many items as the best could do in that time")
    flags.add_argument("--limit", type=float, default=600, help="seconds for everything; what has no time is left out")
    flags.add_argument("--json", help="a file that is written anew after each way")
    chosen = flags.parse_args()
    deadline, task = time.monotonic() + chosen.limit, TASKS.get(chosen.task, chosen.task)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if not shutil.which(chosen.gpumux):
        print(f"no {chosen.gpumux}: make build, or give --gpumux", file=sys.stderr)
        return 2
    report = {"task": chosen.task, "rows": []}

    def add(row):
        report["rows"].append(row)
        print(show(row, report["rows"][0].get("itemsPerSecond")), flush=True)
        if chosen.json:
            pathlib.Path(chosen.json + ".new").write_text(json.dumps(report, indent=1))
            os.replace(chosen.json + ".new", chosen.json)

    clock = time.time()
    try:
        out, last = run([chosen.python, f"{HERE}/bare.py", task, str(chosen.seconds), "3"], deadline)
    except Failed as reason:
        print(reason, file=sys.stderr)
        return 2
    about, *batches = map(json.loads, out.splitlines())
    report["machine"] = about
    values = [value for batch in batches for value in batch]
    right = {i: r["value"] for i, r in enumerate(values[: about["texts"]])}
    print(f"{chosen.task} on {about['device']}, {about['with']}")
    print(LINE.format(*TITLES))
    loop = measured(values, last, clock, about["peak"])
    best = loop["itemsPerSecond"]
    add({"way": "loop", **loop})

    ways = [(slots, sharing) for slots in chosen.slots.split(",") for sharing in chosen.sharing.split(",")]
    refused = set()
    for slots, sharing in ways:
        way = {"way": f"{slots} {sharing}"}
        if sharing in refused or slots == "1" and sharing != ways[0][1]:  # one has nothing to share
            continue
        if time.monotonic() + 1.2 * last > deadline:
            add({**way, "note": "left out: no time within --limit"})
            continue
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_STATE_HOME"] = folder
            batch = len(batches[0])
            items = -int(-best * chosen.seconds // batch) * batch
            words = ["map", task, "--range", f"0:{items}", "--local", "--slots", slots, "--json"]
            words += ["--python", chosen.python, "--out", folder + "/out.jsonl"]
            clock = time.time()
            try:
                out, took = run([chosen.gpumux, *words] + (["--sharing", sharing] if sharing != "default" else []), deadline, (0, 1))
                lines = pathlib.Path(folder, "out.jsonl").read_text().splitlines()
            except Failed as reason:
                if sharing != ways[0][1]:  # a machine that refuses it, or hangs with it, does so again
                    refused.add(sharing)
                add({**way, "note": f"failed: {reason}"})
                continue
        results = [json.loads(line) for line in lines]
        faults = [r["fault"]["message"] for r in results if "fault" in r]
        results = [r for r in results if "value" in r]
        if faults:
            way["failed"], way["note"] = len(faults), f"{len(faults)} of {len(lines)} items failed: {faults[0]}"
        if results:
            row = measured([r["value"] for r in results], took, clock, json.loads(out).get("peak", {}).get("max"), slots == "auto")
            way = {**row, **way, **differing(results, right, about)}
            last, best = took, max(best, row["itemsPerSecond"] or 0)
        add(way)
    print(f"allowed: {about['allowed']:g} of the largest number of the loop, for all items but {about['differing']:.0%}")
    return 1 if any(row.get("wrong") or row.get("failed") for row in report["rows"]) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
