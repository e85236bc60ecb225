"""Throughput and latency of clients under each way to share the device: python sharing.py [--report FILE] [flags of gpumux bench]

With --report it measures nothing and reads a report that `gpumux bench --json FILE` wrote.
"""

import json
import subprocess
import sys

LINE = "{:<9} {:<8} {:>7} {:>10} {:>11} {:>8} {:>11} {:>9}"


def main(arguments):
    if arguments[:1] == ["--report"]:
        path = arguments[1]
    else:
        path = "sharing.json"
        defaults = {"--workloads": "medium,detector", "--clients": "1,3,5,7", "--python": sys.executable}
        flags = [word for flag in defaults.items() if flag[0] not in arguments for word in flag] + arguments
        measured = subprocess.run(["bin/gpumux", "bench", "--json", path, "--html", "sharing.html", *flags], stdout=subprocess.DEVNULL)
        if measured.returncode:
            return measured.returncode
    with open(path) as file:
        report = json.load(file)
    print(LINE.format("workload", "sharing", "clients", "throughput", "q1-q3", "latency", "q1-q3", "item"))
    for row in report["rows"]:
        if row["way"] == "persistent":
            more, longer = row.get("ofUnshared"), row.get("latencyOfUnshared")
            item = f"{row['itemSeconds']['median'] * 1000:.1f}ms"
            print(LINE.format(row["workload"], row["sharing"], row["clients"], *share(more), *share(longer), item))
    print("both as a share of one process that has the device to itself\n")
    for one in report.get("unmeasured", []):
        print(f"not measured: {one['sharing']}: {one['reason']}")
    for line in report.get("notes", []):
        print("note: " + line)
    for line in report.get("advice", []):
        print("- " + line)
    return 0


def share(quartiles):
    """The median of the rounds, and their quartiles."""
    if not quartiles:
        return "unknown", ""
    return f"{quartiles['median']:.0%}", f"{quartiles['q1']:.0%}-{quartiles['q3']:.0%}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
