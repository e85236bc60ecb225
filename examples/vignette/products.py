"""The vignette's products in each of its ways, beside NumPy's in 64 bits: python products.py. Exits with 1 where they do not agree."""

import json
import subprocess
import sys

import numpy as np

ROWS = {"heavy": 2048, "medium": 1024}
TASKS = 4  # of a run in the vignette
ALLOWED = 1e-5  # of the largest number: 32 bits beside 64
WAYS = {
    "Persistent": ["--slots", "4"],
    "Proxy": ["--slots", "4", "--mode", "fresh"],
    "Sequential GPU": ["--slots", "1"],
    "CPU": ["--slots", "4", "--pool", "cpu"],
}


def heavy(seed):
    """The sums of the rows of a product of two matrices of 2048 x 2048."""
    return product("heavy", seed)


def medium(seed):
    """The sums of the rows of a product of two matrices of 1024 x 1024."""
    return product("medium", seed)


def product(name, seed):
    import jax

    jax.config.update("jax_default_matmul_precision", "highest")  # a GPU would take 10 of 23 bits
    a, b = matrices(name, seed)
    return np.asarray(jax.numpy.matmul(a, b)).sum(axis=1)


def matrices(name, seed):
    return np.random.default_rng(seed).random((2, ROWS[name], ROWS[name]), np.float32)


def mapped(name, flags):
    map = ["map", f"examples/vignette/products.py:{name}", "--local", "--python", sys.executable, "--range", f"0:{TASKS}", *flags]
    done = subprocess.run(["bin/gpumux", *map, "--out", "-", "--quiet"], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return [json.loads(line)["value"] for line in done.stdout.splitlines()]


def main():
    wrong = False
    for name in ROWS:
        pairs = [matrices(name, seed).astype(np.float64) for seed in range(TASKS)]
        right = np.array([a @ b.sum(axis=1) for a, b in pairs])
        for way, flags in WAYS.items():
            apart = np.abs(np.array(mapped(name, flags)) - right).max() / right.max()
            wrong |= not apart <= ALLOWED
            print(f"{name:<7} {way:<15} {apart:.1e} of the largest; allowed: {ALLOWED:.0e}{'' if apart <= ALLOWED else '  WRONG'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
