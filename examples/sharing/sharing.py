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
        measured = subprocess.run(["bin/gpumux", "bench", "--json", path, *flags], stdout=subprocess.DEVNULL)
        if measured.returncode:
            return measured.returncode
    with open(path) as file:
        report = json.load(file)
    print(LINE.format("workload", "sharing", "clients", "throughput", "q1-q3", "latency", "q1-q3", "item"))
    alone = {row["workload"]: row for row in report["rows"] if row["way"] == "bare" and row["clients"] == 1}
    for row in report["rows"]:
        if row["way"] == "persistent":
            more, longer = (share(row[name], alone[row["workload"]][name]) for name in ("itemsPerSecond", "itemSeconds"))
            item = f"{row['itemSeconds']['median'] * 1000:.1f}ms"
            print(LINE.format(row["workload"], row["sharing"], row["clients"], *more, *longer, item))
    print("both as a share of one process that has the device to itself\n")
    for line in report.get("notes", []):
        print("note: " + line)
    return 0


def share(quartiles, alone):
    """The median and the quartiles, as shares of one process alone."""
    if not quartiles["count"]:
        return "unknown", ""
    median, q1, q3 = (quartiles[name] / alone["median"] for name in ("median", "q1", "q3"))
    return f"{median:.0%}", f"{q1:.0%}-{q3:.0%}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
