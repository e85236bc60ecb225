"""Maps items of which one in five is too big, with gpumux and with what Python has: python compare.py. --help lists the flags.

Exits with 1 where gpumux loses an item that fits, with 2 where something needed is missing.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
PROCESSES = 4
HOST = 1024 * MIB  # what all processes of a way may hold together
CASES = ("host", "device", "ruin")
WAYS = ("gpumux", "Pool", "Pool.map", "ProcessPoolExecutor")
LINE = "{:<7} {:<20} {:>5} {:>9} {:>7} {:>5} {:>7} {:>8}  {}"


def case(name, count, total):
    """The items, the slots' budget, and which item nothing can finish."""
    bad = [i for i in range(count) if i % 5 == 4]
    if name == "ruin":
        return [{"place": 1_000_000 if i == bad[0] else 0} for i in range(count)], None, bad[0]
    # One in five takes more than a process' share, and one of those more than there is.
    small, large, huge = (int(part * total) for part in ((1 / 32, 1 / 2, 2) if name == "host" else (1 / 100, 2 / 5, 3 / 2)))
    items = [{"bytes": large if i in bad else small} for i in range(count)]
    items[bad[-1]]["bytes"] = huge
    return items, total * 5 // 32 if name == "host" else total * 22 // 100, bad[-1]


def family(pid):
    """A process and its descendants: the bytes that each holds for itself, and the seconds that all have calculated."""
    parents, ticks, held = {}, {}, {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = pathlib.Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        parents[int(entry)], ticks[int(entry)] = int(fields[1]), int(fields[11]) + int(fields[12])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    for one in found:
        try:
            _, resident, shared, *_ = pathlib.Path("/proc", str(one), "statm").read_text().split()
            held[one] = (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
        except (FileNotFoundError, ProcessLookupError):
            pass
    return held, sum(ticks.get(one, 0) for one in found) / os.sysconf("SC_CLK_TCK")


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def watched(words, memory, seconds, patience):
    """The rows that a program prints, how it ended, how long it took to the last row, and how many processes were killed."""
    began = last = busy = looked = time.monotonic()
    rows, killed, before, end = [], set(), 0, "ended"
    with tempfile.TemporaryFile("w+") as errors:
        # In a session of its own, so that Ctrl-C reaches it once: from here.
        program = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True)

        def read():
            nonlocal last, busy
            for line in program.stdout:
                rows.append(json.loads(line))
                last = busy = time.monotonic()

        reader = threading.Thread(target=read)
        reader.start()
        try:
            while end == "ended" and program.poll() is None:
                time.sleep(0.05 if memory else 0.5)
                held, used = family(program.pid)
                # What the kernel's out-of-memory killer does in a container of this size.
                if memory and sum(held.values()) > memory and (largest := max(held, key=held.get)) not in killed:
                    kill(largest)
                    killed.add(largest)
                now = time.monotonic()
                if now > looked + 1:
                    if abs(used - before) > 0.1 * (now - looked):
                        busy = now
                    looked, before = now, used
                if now > busy + patience:
                    end = f"hangs: idle for {patience:.0f}s"
                elif now > began + seconds:
                    end = f"cut off after {seconds:.0f}s"
        finally:
            left, _ = family(program.pid)
            program.terminate()
            try:
                program.wait(15)
            except subprocess.TimeoutExpired:
                pass
            for one in left:
                kill(one)
            program.wait()
            reader.join()
        if program.returncode > 1 and end == "ended":
            errors.seek(0)
            end = f"exit status {program.returncode}: {' '.join(errors.read().strip().splitlines()[-1:])}"
    return rows, end, last - began, len(killed)


def main():
    flags = argparse.ArgumentParser(description=__doc__.partition("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    flags.add_argument("--cases", default=",".join(CASES), help="what one item in five, or with ruin one in all, does to its process")
    flags.add_argument("--ways", default=",".join(WAYS))
    flags.add_argument("--gpumux", default="bin/gpumux", help="the command")
    flags.add_argument("--python", default=sys.executable, help="the Python of all ways")
    flags.add_argument("--items", type=int, default=40)
    flags.add_argument("--seconds", type=float, default=90, help="the most for one way")
    flags.add_argument("--patience", type=float, default=10, help="seconds without a row and with next to nothing calculated that mean that a way hangs")
    flags.add_argument("--limit", type=float, default=600, help="seconds for everything; what has no time is left out")
    flags.add_argument("--json", help="a file that is written anew after each way")
    chosen = flags.parse_args()
    deadline = time.monotonic() + chosen.limit
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if not shutil.which(chosen.gpumux) or not shutil.which(chosen.python):
        print(f"no {chosen.gpumux} (make build, or give --gpumux) or no {chosen.python}", file=sys.stderr)
        return 2
    ask = "import torch; print(torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else 0)"
    asked = subprocess.run([chosen.python, "-c", ask], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    gpu = int(asked.stdout or 0)
    report, lost = {"items": chosen.items, "rows": []}, 0
    print(LINE.format("case", "way", "items", "finished", "faults", "lost", "killed", "last row", "then"))
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen.cases.split(","):
            items, budget, hopeless = case(name, chosen.items, HOST if name == "host" else gpu)
            os.environ["XDG_STATE_HOME"] = folder
            pathlib.Path(folder, "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
            for way in chosen.ways.split(","):
                row = {"case": name, "way": way}
                seconds = min(chosen.seconds, deadline - time.monotonic())
                if name != "host" and not gpu:
                    row["then"] = "left out: it needs PyTorch and a GPU"
                elif seconds < 5:
                    row["then"] = "left out: no time within --limit"
                else:
                    words = [chosen.python, f"{HERE}/ways.py", way, name, f"{folder}/items.jsonl", str(PROCESSES)]
                    if way == "gpumux":
                        words = [chosen.gpumux, "map", f"{HERE}/items.py:{name}", "--in", f"{folder}/items.jsonl", "--local", "--quiet"]
                        words += ["--slots", str(PROCESSES), "--out", "-", "--unordered", "--python", chosen.python]
                        words += ["--memory", f"{budget}B"] * bool(budget) + ["--devices", "cpu"] * (name == "host")
                    rows, then, last, killed = watched(words, HOST if name == "host" else None, seconds, chosen.patience)
                    done = {r["index"] for r in rows if "value" in r}
                    row["why"] = [{"index": r["index"], "says": r.get("error") or r["fault"]["message"]} for r in rows if "value" not in r][:3]
                    row.update(finished=len(done), faults=len(rows) - len(done), lost=len(items) - len(rows), killed=killed, seconds=last, then=then)
                    if way == "gpumux":
                        lost += len(set(range(len(items))) - done - {hopeless})
                report["rows"].append(row)
                cells = [row.get(key, "") for key in ("finished", "faults", "lost", "killed")]
                print(LINE.format(name, way, len(items), *cells, f"{row['seconds']:.1f}s" if "seconds" in row else "", row["then"]), flush=True)
                if chosen.json:
                    pathlib.Path(chosen.json + ".new").write_text(json.dumps(report, indent=1))
                    os.replace(chosen.json + ".new", chosen.json)
    return 1 if lost else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
