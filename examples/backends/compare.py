"""Compare what the program prints with NumPy in 64 bits: backends | python compare.py. Exits with 1 where a number is wrong."""

import json
import sys

import numpy as np

ALLOWED = 1e-5
"""Of the largest number of an operation: its numbers have 32 bits."""


def right():
    """Each operation's numbers, made from the same seeds."""
    a, b = (np.random.default_rng(seed).standard_normal((32, 32), np.float32).astype(np.float64) for seed in range(2))
    relu = np.maximum(a @ b, 0)
    powers = np.exp(relu - relu.max(axis=-1, keepdims=True))
    x = powers / powers.sum(axis=-1, keepdims=True)
    eigenvalues = np.linalg.eigvals(np.linalg.solve(x @ x.T + np.eye(32), x + x.T)).real
    return {"product": a @ b, "relu": relu, "softmax": x, "eigenvalues": np.sort(eigenvalues)}


def main():
    found, wrong = json.load(sys.stdin), 0
    for place in found["devices"]:
        print("device ", place)
    print(f"\n{'chain':<6} {'operation':<12} {'ran on':<14} {'refused by':<29} {'off by':>8}")
    expected = right()
    for step in found["steps"]:
        want = expected[step["operation"]]
        off = float(np.abs(np.array(step["value"]) - want).max() / np.abs(want).max())
        bad = not off <= ALLOWED
        wrong += bad
        ran = f"{step['slot']} {step['place']}"
        print(f"{step['chain']:<6} {step['operation']:<12} {ran:<14} {step.get('refused', ''):<29} {off:>8.0e}{'  WRONG' if bad else ''}")
    print(f"\n{found['copies']} arrays moved between slots; allowed: {ALLOWED:g} of the largest number")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
