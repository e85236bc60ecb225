"""The task process: started by a worker as `python main.py` with the wire on descriptor 3.

Owns start and end of the process. Stops when the worker says so, closes the wire or sends SIGTERM. Started as
`python main.py template N PID`, with a channel to the worker PID on descriptor N, it is a template: it imports the task, and its
children run the items.
"""

import faulthandler
import fcntl
import logging
import os
import signal
import sys

# Exit statuses; docs/wire.md lists them.
WIRE, LOAD, TERMINATED = 64, 65, 143


def main() -> int:
    if sys.version_info < (3, 9):
        print("gpumux: %s is Python %d.%d.%d; gpumux needs 3.9 or newer" % (sys.executable, *sys.version_info[:3]), file=sys.stderr)
        return WIRE
    # The modules of this file's folder must not be importable by their bare names.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [os.path.dirname(os.path.dirname(here))] + [p for p in sys.path if os.path.abspath(p or ".") != here]

    # With the bytecode of these modules a start takes half as long, and their folder is the worker's own.
    sys.dont_write_bytecode = False
    from gpumux.process import wire as wires

    _streams()
    wire = forks = None
    if sys.argv[1:2] == ["template"]:
        from gpumux.process import template

        forks = template.Template(*map(int, sys.argv[2:]))
        # The task sees the arguments that it always sees.
        del sys.argv[1:]
    try:
        wire = wires.Wire(wires.inherit())
        ended = _signals(wire)
        status = _serve(wire, ended, forks)
        if forks and forks.child:
            template.leave(status)
        return status
    except SystemExit as end:
        if end.code == TERMINATED:
            # A thread of the task may hold up the end, and who has sent the signal may wait for nothing.
            signal.signal(signal.SIGALRM, lambda *_: os._exit(TERMINATED))
            signal.alarm(10)
        raise
    except wires.WireError as error:
        print(f"gpumux: {error}", file=sys.stderr)
        return WIRE
    except OSError as error:
        if wire is not None and wire.lost():
            print("gpumux: the task closed or replaced a descriptor that it had not opened: that of the wire", file=sys.stderr)
            return WIRE
        if isinstance(error, (BrokenPipeError, ConnectionResetError)):
            # The worker is gone.
            return 0
        raise


def _greet(wire):
    """Exchange the first messages; None when the worker has gone instead."""
    import gpumux
    from gpumux.process import board
    from gpumux.process.wire import VERSION, WireError

    wire.hello(os.getpid(), "python %d.%d.%d" % sys.version_info[:3])
    first = wire.read()
    if first is None:
        return None
    hello = first[0]
    if hello.get("type") != "hello":
        raise WireError(f"the first message is {hello.get('type')!r}; it must be hello")
    if hello.get("version") != VERSION:
        raise WireError(
            f"this runtime speaks wire version {VERSION}, the worker version {hello.get('version')}; "
            "use the runtime that the worker installs"
        )
    if hello.get("board"):
        wire.use_board(board.inherit(hello["board"]))
    gpumux._slot = gpumux.Slot(
        hello.get("slot") or None, hello.get("device"), hello.get("memory") or None, hello.get("mode"), hello.get("task")
    )
    return hello


def _serve(wire, ended, forks) -> int:
    import gpumux

    from gpumux.process import call, memory, peak, raw, task
    from gpumux.process.wire import Wire, WireError, check_run, inherit

    hello = _greet(wire)
    if hello is None:
        return 0
    sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)
    process = os.getpid()

    def report(framework, error) -> None:
        if os.getpid() == process:
            wire.cap(framework, error)

    memory.cap(hello.get("room") or 0, report)
    if os.environ.get("GPUMUX_EXPLAIN_OOM"):
        from gpumux.process import explain

        explain.record()
    if forks:
        forks.prepare(hello.get("dir") or "")
    try:
        function = task.load(hello.get("target") or "", hello.get("dir") or "", hello.get("own") is True)
    except task.LoadError as error:
        if os.getpid() != process:
            os._exit(1)
        ended()
        wire.fault(error.fault)
        return LOAD
    if os.getpid() != process:
        os._exit(0)
    kinds = raw.reads()
    if forks:
        forks.imported()
        wire.ready(0)
        if not forks.serve():
            return 0
        wire = Wire(inherit())
        ended = _signals(wire)
        forks.restore_handlers()
    memory.reuse()
    on_host = gpumux.slot().device == "CPU"
    caller = call.Caller(wire, peak.of_host() if on_host else peak.of_device(wire.tell_allocators))
    if forks:
        forks.take(wire)
        process = os.getpid()
        hello = _greet(wire)
        if hello is None:
            return 0
    caller.ended = ended
    try:
        try:
            caller.use(task.ready(function))
        except task.LoadError as error:
            ended()
            wire.fault(error.fault)
            return LOAD
        wire.ready(caller.batch, caller.concurrent, kinds)
        while True:
            ended()
            message = wire.read()
            if message is None or message[0].get("type") == "stop":
                return 0
            header, body = message
            if header.get("type") == "cancel":
                wire.canceled(header["runs"])  # all its items have ended meanwhile
                continue
            if header.get("type") != "run":
                raise WireError(f"the worker says {header.get('type')!r} where only run, cancel and stop can come")
            check_run(header, body)
            # The worker waits for results, so it reads the report.
            memory.prove()
            caller.run(header, body)
            if forks:
                # Such a process runs one item, and the worker would say stop.
                return 0
            del message, body
    finally:
        caller.close()


def _streams() -> None:
    """Flush output line by line, and give faulthandler a descriptor that a task does not close by accident."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    try:
        descriptor = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, 10)
        faulthandler.enable(descriptor)
        # The worker sends it to see where a task hangs.
        faulthandler.register(signal.SIGUSR2, descriptor)
    except OSError:
        # There is no standard error.
        pass
    # What is logged is printed as Python prints it, from INFO on, until the task configures logging: then as it says.
    logging.getLogger().setLevel(logging.INFO)
    last = logging.lastResort
    if last is not None:
        last.setLevel(logging.INFO)
        last.setFormatter(logging.Formatter(logging.BASIC_FORMAT))


def _signals(wire):
    """SIGTERM unwinds the main thread, SIGINT does nothing; forked children get Python's own handling back."""
    terminated = False

    def terminate(*_) -> None:
        nonlocal terminated
        terminated = True
        # A frame in progress is sent whole; the caller calls ended() after it.
        if not wire.sending:
            raise SystemExit(TERMINATED)

    def ended() -> None:
        if terminated:
            raise SystemExit(TERMINATED)

    def forked() -> None:
        wire.forked()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGTERM, terminate)
    # A handler, since the task's children would inherit SIG_IGN.
    signal.signal(signal.SIGINT, lambda *_: None)
    os.register_at_fork(after_in_child=forked)
    return ended


if __name__ == "__main__":
    sys.exit(main())
