"""What the output of a step comes to: figures, the reasons for skips, and what later steps go by.

Owns the reading. Never runs anything.
"""

import json
import re

from facts import each_context, told
from frameworks import lacks, versions
from step import BAD, FAILED, LEFT_OUT, PASSED, SKIPPED

GOAL = 97
REACH = """
import importlib.util, json, sys
name = sys.argv[1]
if importlib.util.find_spec(name) is None:
    print(json.dumps({"why": "not installed"})); sys.exit()
module = importlib.import_module(name)
reached = {"torch": lambda: module.cuda.is_available(), "jax": lambda: module.default_backend() == "gpu",
           "cupy": lambda: module.cuda.runtime.getDeviceCount() > 0}[name]
try:
    why = "" if reached() else "reaches no GPU"
except Exception as error:
    why = f"reaches no GPU: {error}"[:200]
print(json.dumps({"version": module.__version__, "why": why}))
"""


def read_test(step, text):
    """Figures and skips of `go test -v`."""
    marks = re.findall(r"^\s*--- (PASS|FAIL|SKIP): (\S+)", text, re.M)
    step.figures = re.findall(r"\.go:\d+: figure: (.*)", text)
    skips = list(dict.fromkeys(re.findall(r"_test\.go:\d+: skip: (.*)", text)))
    parents = {name.rpartition("/")[0] for _, name in marks}
    leaves = [mark for mark, name in marks if name not in parents]
    if step.result == PASSED and not leaves:
        step.result, step.why = FAILED, "no test ran"
    elif step.result == PASSED and all(mark == "SKIP" for mark in leaves):
        step.result, step.why = SKIPPED, "; ".join(skips)
    elif skips:
        step.figures += ["skipped: " + why for why in skips]


def read_bench(step, text):
    """Throughput beside bare processes, from the JSON of gpumux bench, also of one that was ended."""
    try:
        with open(step.measured) as file:
            report = json.load(file)
    except (OSError, ValueError):
        return
    machine = report["machine"]
    step.figures.append(f"{machine['device']}, {machine.get('framework', 'no framework')}")
    for row in report["rows"]:
        share = row.get("ofBare")
        if share:
            name = row["workload"] + (f" {row['size']}" if row.get("size") else "")
            judged = name.startswith("medium") and row["way"] == "persistent"
            goal = f" (goal {GOAL} %)" if judged else ""
            slots = f"{row['clients']} slot{'s' if row['clients'] > 1 else ''}"
            step.figures.append(f"{name}, {row['way']}, {row['sharing']}: {slots} do {100 * share['median']:.1f} % of as many bare "
                                f"processes, quartiles {100 * share['q1']:.1f} and {100 * share['q3']:.1f} %{goal}; "
                                f"{row['itemsPerSecond']['median']:.1f} items/s, {1000 * row['itemSeconds']['median']:.3f} ms")
    step.figures += ["note: " + note for note in report.get("notes") or ()]
    step.report = report


def read_figures(step, text):
    """What an example has printed is its table; what it has measured goes into the summary."""
    step.figures = text.rstrip().splitlines()
    try:
        with open(step.measured) as file:
            step.report = json.load(file)
    except (OSError, ValueError):
        pass


def read_facts(path, parts, step, text):
    """What is worth a line of these parts of the facts, and what later steps go by."""
    step.lacks = {}
    try:
        with open(path) as file:
            facts = json.load(file)
        step.lacks, step.each_context, step.versions = lacks(facts), each_context(facts), versions(facts)
        facts = {part: facts[part] for part in parts if part in facts}
        step.figures = [f"{part}: {facts[part]['failed']}" for part in facts if "failed" in facts[part]]
        step.figures += told(facts)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        step.figures.append(f"what is in {path} cannot be summed up: {type(error).__name__}: {error}")


def read_reach(step, text):
    answer = next((json.loads(line) for line in text.splitlines() if line.startswith("{")), None)
    step.lacks = "its import failed" if answer is None else answer["why"]
    if step.result == PASSED and step.lacks:
        step.result, step.why = SKIPPED, step.lacks
    elif step.result == PASSED:
        step.figures = [answer["version"]]


def claims_of(path):
    """The claims of the documentation's table by the names of the tests, which stand before each; none where it cannot be read."""
    try:
        with open(path) as file:
            rows = re.findall(r"^\| (\w[^|]*) \| ([^|]+) \|$", file.read().partition("## What is checked")[2].partition("\n## ")[0], re.M)
    except OSError:
        rows = []
    return {name: re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", claim) for names, claim in rows[1:] for name in names.split(", ")}


def markdown(machine, rows, documentation):
    """A row for README's table of GPUs, and a table of what came of each claim."""
    counts = {"passed": 0, "failed": 0, "left out": 0}
    by_claim, claims = {}, claims_of(documentation)
    for row in rows:
        test, result = re.match(r"TestGPU_(\w+)", row["step"]), row["result"]
        if not test:
            continue
        kind = "passed" if result == PASSED else "failed" if result in BAD and result != LEFT_OUT else "left out"
        counts[kind] += 1
        claim = claims.get(test[1], test[1])
        why = {PASSED: "", SKIPPED: row["why"].partition(":")[0], LEFT_OUT: "no time"}.get(result, row["why"][:100])
        name = row["step"][len("TestGPU_"):] + (f" ({why})" if why else "")
        by_claim.setdefault(claim, {each: [] for each in counts})[kind].append(name)
    about = [machine.get("gpu", "no GPU").partition(":")[0], machine.get("driver", ""), machine.get("date", "")]
    with_ = ", ".join(f"{name} {version}" for name, version in machine.get("frameworks", {}).items())
    lines = ["| GPU | driver | date | frameworks | passed | failed | left out |", "|---|---|---|---|---|---|---|",
             "| " + " | ".join(cell(each) for each in [*about, with_, *map(str, counts.values())]) + " |", "",
             "| claim | passed | failed | left out |", "|---|---|---|---|"]
    for claim, kinds in by_claim.items():
        lines.append(f"| {claim} | " + " | ".join(cell(", ".join(kinds[kind])) for kind in counts) + " |")
    return "\n".join(lines) + "\n"


def cell(text):
    return text.replace("|", "/").replace("\n", " ")
