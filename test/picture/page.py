"""Takes a picture of a map's page in the Web UI: python page.py GPUMUX WEBP. Needs Chromium (Debian: apt-get install chromium)."""

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import IO

TASK = """
import time

def embed(item):
    while item["id"] >= 170:
        time.sleep(1)
    return {"length": len(item["text"])}
"""
LIMIT = 60.0
# The page without the bars of the Web UI, in pixels.
WINDOW = 1420, 900
CLIP = {"x": 256, "y": 66, "width": 1164, "height": 640, "scale": 1}


class Browser:
    """One page of a Chromium, asked over the pipes that it has as descriptors 3 and 4."""

    def __init__(self, profile: str) -> None:
        path = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
        if path is None:
            sys.exit("there is no Chromium on PATH; on Debian: apt-get install chromium")
        (theirs, self.to), (answers, theirs_too) = os.pipe(), os.pipe()

        def connect() -> None:
            # Neither may be overwritten by the other.
            first, second = os.dup(theirs), os.dup(theirs_too)
            os.dup2(first, 3)
            os.dup2(second, 4)

        flags = ["--headless", "--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={profile}", "--window-size=%d,%d" % WINDOW]
        flags += ["--no-sandbox"] if os.geteuid() == 0 else []
        self.process = subprocess.Popen([path, *flags], preexec_fn=connect, close_fds=False, stderr=subprocess.DEVNULL)
        os.close(theirs)
        os.close(theirs_too)
        self.answers = os.fdopen(answers, "rb")
        self.asked, self.session = 0, None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def ask(self, method: str, **params: object) -> dict:
        self.asked += 1
        message = {"id": self.asked, "method": method, "params": params, **({"sessionId": self.session} if self.session else {})}
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = json.loads(b"".join(iter(lambda: self.answers.read(1), b"\0")) or b"{}")
            if answer.get("id") == self.asked:
                return answer["result"]

    def picture(self, url: str, shows: str) -> bytes:
        """The page as WebP, once a text on it, or in a frame of it, is the one that it is to show."""
        self.ask("Page.navigate", url=url)
        end = time.monotonic() + LIMIT
        while not any(shows in text for text in self.ask("DOMSnapshot.captureSnapshot", computedStyles=[])["strings"]):
            if time.monotonic() > end:
                sys.exit(f"{url} does not show {shows!r}")
            time.sleep(0.1)
        return base64.b64decode(self.ask("Page.captureScreenshot", format="webp", quality=80, clip=CLIP)["data"])


def started(server: IO[str]) -> tuple:
    """The addresses of Temporal and of the Web UI that gpumux dev says."""
    said = "".join(iter(server.readline, "\n"))
    return re.search(r"^temporal +(\S+)", said, re.M)[1], re.search(r"^web UI +(\S+)", said, re.M)[1]


def main(gpumux: str, target: str) -> None:
    gpumux = os.path.abspath(gpumux)
    with tempfile.TemporaryDirectory(prefix="gpumux-", ignore_cleanup_errors=True) as folder:
        with open(os.path.join(folder, "embed.py"), "w") as out:
            out.write(TASK)
        with open(os.path.join(folder, "items.jsonl"), "w") as out:
            for i in range(200):
                out.write(json.dumps({"id": i, **({"text": "to be or not to be"} if i != 117 else {"title": "none"})}) + "\n")
        server = subprocess.Popen(
            [gpumux, "dev", "--tasks", ".", "--data", "data", "--port", "0", "--ui-port", "0", "--devices", "cpu", "--slots", "2", "--python", sys.executable],
            cwd=folder, stderr=subprocess.PIPE, text=True,
        )
        browser = None
        try:
            temporal, ui = started(server.stderr)

            def ask(*words: str) -> str:
                return subprocess.run([gpumux, *words, "--address", temporal], cwd=folder, stdout=subprocess.PIPE, text=True, check=True).stdout

            ask("map", "embed:embed", "--in", "items.jsonl", "--pool", "cpu", "--id", "embed-texts", "--detach", "--quiet")
            end = time.monotonic() + LIMIT
            while (state := json.loads(ask("ls", "--json"))[0])["succeeded"] < 160 and time.monotonic() < end:
                time.sleep(0.1)
            browser = Browser(os.path.join(folder, "profile"))
            page = f"{ui.rstrip('/')}/namespaces/default/workflows/embed-texts/{state['runId']}/user-metadata"
            shown = browser.picture(page, "1 × task_error")
        finally:
            for process in filter(None, (browser and browser.process, server)):
                process.send_signal(signal.SIGTERM)
                process.wait()
    with open(target, "wb") as out:
        out.write(shown)


if __name__ == "__main__":
    main(*sys.argv[1:])
