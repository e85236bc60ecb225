"""Runs pipelines with gpumux and with what else runs them, in turns: python compare.py. --help lists the flags.

Exits with 1 where values differ from those of a plain loop, with 2 where something needed is missing.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
WAYS = ("gpumux", "by hand", "ray", "daft")
LINE = "{:<9} {:<8} {:>6} {:>9} {:>17} {:>9} {:>10}"


def expected(pipeline, items):
    """The values of a plain loop over the first items."""
    values = items[:64]
    for step in pipeline.steps:
        call = step.call()
        values = list(call(values)) if step.batch > 1 else [call(value) for value in values]
    return numpy.array(values)


def words(way, name, pipeline, items, chosen, folder):
    if way != "gpumux":
        return [chosen.python, f"{HERE}/ways.py", way, name, f"{folder}/items.json", f"{folder}/{way}.jsonl"]
    tasks = [f"{step.task()}@cpu-{at}" for at, step in enumerate(pipeline.steps)]
    slots = ",".join(f"cpu-{at}={step.processes}" for at, step in enumerate(pipeline.steps))
    return [chosen.gpumux, "map", *tasks, "--in", f"{folder}/items.jsonl", "--local", "--slots", slots, "--python", chosen.python,
        "--out", f"{folder}/{way}.jsonl", *([] if chosen.verbose else ["--quiet"])]


def main():
    flags = argparse.ArgumentParser(description=__doc__.partition("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    flags.add_argument("--pipelines", default=",".join(steps.PIPELINES))
    flags.add_argument("--ways", default=",".join(WAYS), help="ray and daft are left out where the Python lacks them")
    flags.add_argument("--gpumux", default="bin/gpumux", help="the command")
    flags.add_argument("--python", default=sys.executable, help="the Python of all ways")
    flags.add_argument("--share", type=float, default=1, help="how much of the items to run")
    flags.add_argument("--rounds", type=int, default=3, help="how often, in turns")
    flags.add_argument("--limit", type=float, default=300, help="the most seconds for one way")
    flags.add_argument("--verbose", action="store_true", help="show what the ways print")
    chosen = flags.parse_args()
    if not shutil.which(chosen.gpumux):
        print(f"no {chosen.gpumux}: make build, or give --gpumux", file=sys.stderr)
        return 2
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), *sys.path[1:2], os.environ.get("PYTHONPATH")]))
    wrong = False
    print(LINE.format("pipeline", "way", "items", "median", "all", "items/s", "of gpumux"))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder
        for name in chosen.pipelines.split(","):
            pipeline = steps.PIPELINES[name]
            items = list(range(int(pipeline.items * chosen.share)))
            if name == "images":
                photos.save(f"{folder}/photos", len(items))
                items = sorted(map(str, pathlib.Path(folder, "photos").iterdir()))
            pathlib.Path(folder, "items.json").write_text(json.dumps(items))
            pathlib.Path(folder, "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
            right, took = expected(pipeline, items), {way: [] for way in chosen.ways.split(",")}
            for _ in range(chosen.rounds):
                for way, seconds in took.items():
                    if subprocess.run([chosen.python, "-c", f"import {way}"], stderr=subprocess.DEVNULL).returncode and way in ("ray", "daft"):
                        continue
                    began = time.monotonic()
                    said = None if chosen.verbose else subprocess.DEVNULL
                    subprocess.run(words(way, name, pipeline, items, chosen, folder), stdout=said, stderr=said, check=True, timeout=chosen.limit)
                    seconds.append(time.monotonic() - began)
                    with open(f"{folder}/{way}.jsonl") as file:
                        found = [json.loads(line)["value"] for line in file]
                    wrong |= len(found) != len(items) or not numpy.allclose(numpy.array(found[: len(right)]), right, atol=1e-5)
            base = statistics.median(took.get("gpumux") or [0])
            for way, seconds in took.items():
                if not seconds:
                    print(LINE.format(name, way, len(items), "", "", "", "not there"))
                    continue
                median = statistics.median(seconds)
                print(LINE.format(name, way, len(items), f"{median:.2f}s", f"{min(seconds):.2f}-{max(seconds):.2f}s", f"{len(items) / median:.0f}",
                    f"{base / median:.0%}" if base else ""), flush=True)
            if pipeline.ideal:
                print(LINE.format(name, "ideal", len(items), f"{pipeline.ideal * chosen.share:.2f}s", "", "", ""))
    if wrong:
        print("WRONG: values differ from those of a loop")
    return int(wrong)


if __name__ == "__main__":
    try:
        import numpy
        import photos
        import steps
    except ImportError as missing:
        sys.exit(f"{missing}: make venv, and PYTHONPATH=clients/python")
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
