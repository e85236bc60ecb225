"""Prints what the sweep came to: python3 report.py SUMMARY ITEMS RESULTS

SUMMARY is what gpumux map --json printed, ITEMS its input and RESULTS its results file.
"""

import json
import statistics
import sys

BEST = 5
WIDTH = 40


def main(summary_file, items_file, results_file):
    with open(summary_file) as file:
        summary = json.load(file)
    items = lines(items_file)
    results = lines(results_file)
    trained = [(items[r["index"]], r["value"]) for r in results if "value" in r]
    failed = [r for r in results if "fault" in r]

    elapsed = summary["elapsed"]
    devices = ", ".join(sorted({value["device"] for _, value in trained})) or "no device"
    print(f"\n{len(trained)} networks trained on {devices}, {len(failed)} failed")
    print(f"{elapsed:.1f} s, {len(results) / max(elapsed, 1e-3):.1f} networks per second, {summary['chunks']} chunks\n")
    if trained:
        best(trained)
        sizes(trained)
    for result in failed[:BEST]:
        fault = result["fault"]
        print(f"item {result['index']} failed: {fault['kind']}: {fault['message']}")
    print(f"results  {results_file}")


def best(trained):
    print("accuracy    loss   hidden   rate       l2   seed   seconds")
    order = sorted(trained, key=lambda pair: (-pair[1]["accuracy"], pair[1]["loss"] is None, pair[1]["loss"]))
    for item, value in order[:BEST]:
        loss = "-" if value["loss"] is None else f"{value['loss']:.4f}"
        print(
            f"{value['accuracy']:8.2%}  {loss:>6}   {item['hidden']:6}   {item['rate']:4}   {item['l2']:6}   "
            f"{item['seed']:4}   {value['seconds']:7.2f}"
        )
    print()


def sizes(trained):
    """How much the size of the hidden layer matters: the median error of each."""
    errors = {}
    for item, value in trained:
        errors.setdefault(item["hidden"], []).append(1 - value["accuracy"])
    medians = {hidden: statistics.median(values) for hidden, values in sorted(errors.items())}
    most = max(medians.values()) or 1
    print("hidden   median share of images read wrong")
    for hidden, median in medians.items():
        print(f"{hidden:6}   {'#' * round(WIDTH * median / most)} {median:.2%}")
    print()


def lines(name):
    with open(name) as file:
        return [json.loads(line) for line in file]


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
