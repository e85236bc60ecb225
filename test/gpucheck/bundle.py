#!/usr/bin/env python3
"""Packs what check.py needs on a machine that has neither Go nor a network.

    bundle.py [--into .gpu] [--most MIB] NAME=FILE …

Each FILE becomes NAME.xz, and bundle.json lists them. Owns the bundle's folder: what else lies there is removed. Never builds
anything: `make gpu-bundle` does, then runs this. Ends with the bundle's size, or with status 1 when that is over the limit.
"""

import argparse
import hashlib
import json
import lzma
import os
import shutil
import sys

LIST = "bundle.json"
MIB = 1 << 20


def pack(folder, files, most):
    """Make the folder anew and return its size in bytes; ValueError when that is over most."""
    for name, path in files.items():
        if not os.path.isfile(path):
            raise ValueError(f"there is no file {path} to pack as {name}; build it first")
    work = os.path.join(folder, ".new")
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    listed = {}
    for name, path in files.items():
        digest, size = hashlib.sha256(), 0
        with open(path, "rb") as source, lzma.open(os.path.join(work, name + ".xz"), "wb", preset=3) as packed:
            while block := source.read(MIB):
                digest.update(block)
                packed.write(block)
                size += len(block)
        listed[name] = {"sha256": digest.hexdigest(), "bytes": size}
    with open(os.path.join(work, LIST), "w") as out:
        json.dump({"files": listed}, out, indent=1)
    sizes = {name: os.path.getsize(os.path.join(work, name)) for name in sorted(os.listdir(work))}
    for name, size in sizes.items():
        print(f"{size / MIB:8.1f} MiB  {name}")
    total = sum(sizes.values())
    if total > most:
        shutil.rmtree(work)
        raise ValueError(f"the bundle has {total / MIB:.1f} MiB, more than {most / MIB:.0f} MiB; leave something out")
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if os.path.isdir(path) and path != work:
            shutil.rmtree(path)
        elif path != work:
            os.remove(path)
    for name in sizes:
        os.rename(os.path.join(work, name), os.path.join(folder, name))
    os.rmdir(work)
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--into", default=".gpu")
    parser.add_argument("--most", type=float, default=50, help="the most MiB that the bundle may have")
    parser.add_argument("files", nargs="+", metavar="NAME=FILE")
    given = parser.parse_args()
    try:
        files = dict(each.split("=", 1) for each in given.files)
        total = pack(given.into, files, given.most * MIB)
    except ValueError as error:
        sys.exit(f"bundle.py: {error}")
    print(f"{total / MIB:8.1f} MiB  {given.into}, of at most {given.most:.0f} MiB")


if __name__ == "__main__":
    main()
