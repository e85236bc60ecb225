"""Programs that tests start and interrupt."""

import pathlib
import signal
import subprocess
import sys
import textwrap


def interrupted(program: str) -> tuple[int, str]:
    """Start a program, interrupt it once when it has printed "waits" and sleeps, and return its status and what it said."""
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ran:
        line = ran.stdout.readline()
        # The interpreter loses a signal between its last look for one and the call that blocks.
        while ran.poll() is None and not _sleeps(ran.pid):
            pass
        ran.send_signal(signal.SIGINT)
        try:
            said = ran.communicate(timeout=60)[1]
        finally:
            ran.kill()
    assert line == "waits\n", (line, said)
    return ran.returncode, said


def _sleeps(process: int) -> bool:
    """Whether all its threads do."""
    try:
        return all(stat.read_text().rpartition(") ")[2][0] == "S" for stat in pathlib.Path(f"/proc/{process}/task").glob("*/stat"))
    except (FileNotFoundError, ProcessLookupError):
        return False  # one has just ended
