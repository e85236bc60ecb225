"""The vignette's tables from `gpumux bench`: python vignette.py [--report FILE] [flags of gpumux bench]

With --report it measures nothing and reads a report that `gpumux bench --json FILE` wrote.
"""

import json
import subprocess
import sys

TASKS = 4  # of a run in the vignette
WAYS = {"persistent": "Persistent", "fresh": "Proxy", "sequential": "Sequential"}
# What the vignette concludes: the first way does more than the second one.
EXPECTED = [
    ("heavy", "sequential", "persistent"),
    ("heavy", "persistent", "fresh"),
    ("medium", "persistent", "sequential"),
]
ROUNDS = 6  # fewer say nothing
LINE = "{:<9} {:<15} {:>7} {:>9} {:>9} {:>9} {:>5} {:>9}"


def main(arguments):
    if arguments[:1] == ["--report"]:
        path = arguments[1]
    else:
        path = "vignette.json"
        defaults = {"--workloads": "heavy,medium,light", "--clients": str(TASKS), "--python": sys.executable}
        flags = [word for flag in defaults.items() if flag[0] not in arguments for word in flag] + arguments
        measured = subprocess.run(["bin/gpumux", "bench", "--json", path, *flags], stdout=subprocess.DEVNULL)
        if measured.returncode:
            return measured.returncode
    with open(path) as file:
        report = json.load(file)
    rows = {(row["workload"], way(row)): row for row in report["rows"] if row.get("sharing") == "default"}
    table(rows)
    print()
    for workload, more, less in EXPECTED:
        if any(name == workload for name, _ in rows):
            verdict = compare(rows.get((workload, more)), rows.get((workload, less)))
            print(f"{workload}: {WAYS[more]} does more than {WAYS[less]}: {verdict}")
    print()
    for line in report.get("notes", []):
        print("note: " + line)
    return 0


def way(row):
    """One process that stays, as the vignette calls it."""
    return "sequential" if row["clients"] == 1 and row["way"] == "persistent" else row["way"]


def table(rows):
    """A line per workload and way: the seconds that four tasks take."""
    print(LINE.format("workload", "way", "clients", "lq", "median", "uq", "neval", "item"))
    for (workload, way), row in rows.items():
        rate = row["itemsPerSecond"]
        cells = [took(rate[name]) for name in ("q3", "median", "q1")]
        print(LINE.format(workload, WAYS[way], row["clients"], *cells, rate["count"], f"{row['itemSeconds']['median']:.3g}"))


def took(rate):
    return f"{TASKS / rate:.3g}" if rate else "-"


def compare(more, less):
    """Whether one way does more than another one, as far as the quartiles tell."""
    if not more or not less:
        return "not measured"
    more, less = more["itemsPerSecond"], less["itemsPerSecond"]
    if min(more["count"], less["count"]) < ROUNDS:
        return "not known, with fewer than six rounds"
    if more["q1"] > less["q3"]:
        return f"yes, {more['median'] / less['median']:.3g} times"
    if less["q1"] > more["q3"]:
        return f"no, {more['median'] / less['median']:.3g} times"
    return "not known, the quartiles overlap"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
