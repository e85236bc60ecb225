"""The ways without gpumux: python ways.py WAY FUNCTION ITEMS.jsonl PROCESSES prints a line for each item that ends, at once."""

import concurrent.futures
import json
import multiprocessing
import sys

import items


def tell(index, **outcome):
    print(json.dumps({"index": index, **outcome}), flush=True)


def failed(index, error):
    tell(index, error=f"{type(error).__name__}: {error}")


def pool(function, rows, processes, context):
    """Pool, item by item: each tells when it is there."""
    with context.Pool(processes) as workers:
        for index, row in enumerate(rows):
            workers.apply_async(
                function, (row,), callback=lambda value, index=index: tell(index, value=value), error_callback=lambda error, index=index: failed(index, error)
            )
        workers.close()
        workers.join()


def pool_map(function, rows, processes, context):
    """Pool.map: all results at the end."""
    with context.Pool(processes) as workers:
        for index, value in enumerate(workers.map(function, rows)):
            tell(index, value=value)


def executor(function, rows, processes, context):
    with concurrent.futures.ProcessPoolExecutor(processes, mp_context=context) as workers:
        indices = {workers.submit(function, row): index for index, row in enumerate(rows)}
        for future in concurrent.futures.as_completed(indices):
            if future.exception():
                failed(indices[future], future.exception())
            else:
                tell(indices[future], value=future.result())


WAYS = {"Pool": pool, "Pool.map": pool_map, "ProcessPoolExecutor": executor}

if __name__ == "__main__":
    _, way, function, path, processes = sys.argv
    with open(path) as file:
        rows = [json.loads(line) for line in file]
    WAYS[way](getattr(items, function), rows, int(processes), multiprocessing.get_context("spawn"))  # CUDA survives no fork
