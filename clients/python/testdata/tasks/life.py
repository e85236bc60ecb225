"""Tasks that tell where they are and wait for what the test does. An item is a path for the marks they leave."""

import asyncio
import os
import threading
import time

import gpumux


def mark(path):
    with open(path, "w"):
        pass


def waits(path):
    try:
        gpumux.progress("waits")
        while True:
            time.sleep(60)
    finally:
        mark(path)


async def waits_awaited(path):
    try:
        gpumux.progress("waits")
        await asyncio.sleep(600)
    finally:
        await asyncio.sleep(0)
        mark(path)


def swallows(path):
    try:
        gpumux.progress("waits")
        while True:
            time.sleep(60)
    except BaseException:
        mark(path)
        return "finished all the same"


def until(path):
    """Runs until the test makes the path; null runs at once."""
    while path is not None and not os.path.exists(path):
        time.sleep(0.005)
    return path is None


def slot(x):
    return list(gpumux.slot())


def resident(x):
    return gpumux.resident("counter", lambda: [0]).append(x) or gpumux.resident("counter", lambda: 1 / 0)


def reports(x):
    gpumux.progress({"step": x})
    thread = threading.Thread(target=gpumux.progress, args=("from a thread",))
    thread.start()
    thread.join()
    try:
        gpumux.progress(object())
    except TypeError as error:
        return str(error)
