"""Prints the configurations of the sweep, one per line: python3 grid.py > sweep.jsonl"""

import itertools
import json

HIDDEN = [16, 32, 64, 128, 256]
RATE = [0.01, 0.03, 0.1, 0.3]
L2 = [0, 0.0001, 0.001]
SEED = [1, 2]

if __name__ == "__main__":
    for hidden, rate, l2, seed in itertools.product(HIDDEN, RATE, L2, SEED):
        print(json.dumps({"hidden": hidden, "rate": rate, "l2": l2, "epochs": 80, "seed": seed}))
