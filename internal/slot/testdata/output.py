"""Tasks that do what they like to the file behind their output, or print when nobody asked."""

import os
import signal
import subprocess
import threading


def flood():
    with open(os.environ["LOG"], "w") as file:
        file.write(f"{os.getpid()}\n")
    while True:
        os.write(1, b"endless " * 8192)


WAYS = {
    "cut": lambda: os.ftruncate(1, 0),
    "shell": lambda: subprocess.run(["sh", "-c", "echo short > /dev/stderr"], check=True),
    "huge": lambda: os.ftruncate(1, 1 << 40),
}

if os.environ.get("FLOODS") == "import":
    flood()


def item(x):
    if os.environ.get("FLOODS") == "idle":
        threading.Thread(target=flood, daemon=True).start()
    os.write(1, b"y" * 2000)
    if "how" in x:
        WAYS[x["how"]]()
    os.write(1, b"the end of %d\n" % x["i"])
    if "end" in x:
        os.kill(os.getpid(), signal.SIGKILL)
    return [x["i"], os.getpid()]
