"""Programs that tests start and interrupt."""

import signal
import subprocess
import sys
import textwrap


def interrupted(program: str) -> tuple[int, str]:
    """Start a program, interrupt it once when it prints "waits", and return its status and what it said."""
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ran:
        line = ran.stdout.readline()
        ran.send_signal(signal.SIGINT)
        try:
            said = ran.communicate(timeout=60)[1]
        finally:
            ran.kill()
    assert line == "waits\n", (line, said)
    return ran.returncode, said
