import concurrent.futures
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import traceback
import unittest

import gpumux

from . import tasks
from .program import interrupted


class Executor(unittest.TestCase):
    def test_calls(self):
        with gpumux.Executor(slots=2) as executor:
            self.assertEqual(executor.submit(tasks.double, 21).result(), 42)
            self.assertEqual(list(executor.map(pow, range(200), [2] * 200)), [n * n for n in range(200)])
            self.assertEqual(executor.submit(tasks.move, tasks.Point(1), by=2).result().x, 3)
            self.assertEqual(executor.submit(lambda x: x + 1, 1).result(), 2)
            futures = [executor.submit(tasks.pid, n) for n in range(50)]
            found = {future.result() for future in concurrent.futures.as_completed(futures)}
            self.assertTrue(0 < len(found) <= 2 and os.getpid() not in found, found)
        with self.assertRaisesRegex(RuntimeError, "shut down"):
            executor.submit(tasks.double, 1)

    def test_a_function_is_what_it_is_at_submit(self):
        with gpumux.Executor(slots=1) as executor:
            factor = 5
            scaled = lambda x, by=1: x * by * factor
            calls = [executor.submit(scaled, 1)]
            factor = 7
            calls.append(executor.submit(scaled, 1))
            scaled.__defaults__ = (10,)
            calls.append(executor.submit(scaled, 1))
            factor = 5
            scaled.__defaults__ = (1,)
            calls.append(executor.submit(scaled, 1))
            self.assertEqual([call.result() for call in calls], [5, 7, 70, 5])

            loaded = []
            count = lambda: loaded.append(1) or len(loaded)
            self.assertEqual([executor.submit(count).result() for _ in range(3)], [1, 2, 3], "one process loads it once")
            for n in range(20):
                executor.submit(lambda: n).result()
            self.assertLess(len(os.listdir(executor._folder)), 3, "functions of calls that are over")
        self.assertFalse(os.path.exists(executor._folder))

    def test_what_a_call_raises(self):
        class Own(Exception):
            pass

        def own():
            raise Own("mine")

        with gpumux.Executor(slots=1) as executor:
            with self.assertRaisesRegex(ValueError, "^not three$") as raised:
                executor.submit(tasks.picky, 3).result()
            cause = raised.exception.__cause__
            self.assertIsInstance(cause, gpumux.Fault)
            self.assertEqual((cause.kind, cause.raised, cause.attempts), ("task_error", "ValueError", 1))
            printed = "".join(traceback.format_exception(ValueError, raised.exception, None))
            self.assertRegex(printed, '(?s)"""\nTraceback .* in picky\n.*"""\n\nThe above exception was the direct cause .*ValueError: not three\n$')
            with self.assertRaises(Own):
                executor.submit(own).result()
            kept = executor.submit(tasks.raise_kept, "text", 7).exception()
            self.assertEqual((type(kept), kept.code, str(kept)), (tasks.Kept, 7, "text"))
            memory = executor.submit(tasks.exhaust).exception()
            self.assertEqual((type(memory), memory.__cause__.kind), (MemoryError, "host_oom"))
            self.assertIsInstance(executor.submit(lambda: threading.Lock()).exception(), TypeError)
            self.assertTrue(all(name.endswith(".pickle") for name in os.listdir(executor._folder)), "exceptions that were given")

    def test_what_is_a_fault(self):
        with gpumux.Executor(slots=1) as executor:
            for call, said in (
                ((tasks.raise_broken, 1, 2), "Broken.*cannot be unpickled here: TypeError: .*missing 1 required"),
                ((tasks.raise_holding,), "Holding.*cannot be pickled: "),
                ((tasks.leave,), "SystemExit"),
            ):
                fault = executor.submit(*call).exception()
                self.assertIsInstance(fault, gpumux.Fault)
                self.assertRegex(str(fault), said)
                self.assertIn("in " + call[0].__name__, fault.traceback)
            died = executor.submit(tasks.die, 0).exception()
            self.assertEqual((type(died), died.kind), (gpumux.Fault, "crash"))
            self.assertGreaterEqual(died.attempts, 2, "tried again alone")
            self.assertEqual(executor.submit(tasks.double, 1).result(), 2, "after a crash")

    def test_sigterm_with_a_thread_left_behind(self):
        """What would hold up the end of the process for ever."""
        with gpumux.Executor(slots=1) as executor:
            executor.submit(tasks.leave_thread, 600).result(60)
            died = executor.submit(tasks.signal_itself, signal.SIGTERM).exception(100)
            self.assertEqual((died.kind, died.fields["exit"]), ("crash", "signal SIGTERM"))

    def test_one_result_never_costs_others(self):
        """Whatever its exception or its value does here."""
        with gpumux.Executor(slots=1) as executor:
            frozen, causeless = (executor.submit(tasks.raise_class, kind) for kind in (tasks.Frozen, tasks.Causeless))
            kinds = ValueError, SystemExit, KeyboardInterrupt
            values = [executor.submit(tasks.Bomb, kind) for kind in kinds]
            errors = [executor.submit(tasks.raise_bomb, kind) for kind in kinds]
            called = executor.submit(tasks.double, 1)
            called.add_done_callback(lambda _: sys.exit("a callback's own"))
            with self.assertLogs("gpumux", "ERROR"):
                last = executor.submit(tasks.double, 21)
                last.result(60)
            self.assertIsInstance(frozen.exception(60), tasks.Frozen)
            self.assertIsInstance(frozen.exception().__cause__, gpumux.Fault)
            self.assertIsInstance(causeless.exception(60), tasks.Causeless)
            for kind, value, error in zip(kinds, values, errors):
                self.assertRegex(str(value.exception(60)), f"^task_error: {kind.__name__}: the result of the call cannot be unpickled here: ")
                self.assertIsInstance(value.exception().__cause__, kind)
                self.assertRegex(str(error.exception(60)), f"BombError.* the exception cannot be unpickled here: {kind.__name__}: ")
            self.assertEqual((called.result(60), last.result(60)), (2, 42))

    def test_a_lost_folder_breaks_it(self):
        with tempfile.TemporaryDirectory() as gate, gpumux.Executor(slots=1) as executor:
            runs = executor.submit(tasks.await_file, os.path.join(gate, "came"))
            waits = executor.submit(tasks.await_file, "/no/such/file")
            tasks.await_true(runs.running)
            shutil.rmtree(executor._folder)
            with self.assertRaisesRegex(concurrent.futures.BrokenExecutor, f"folder {executor._folder} is gone"):
                executor.submit(tasks.double, 1)
            for future in runs, waits:
                self.assertIsInstance(future.exception(60), concurrent.futures.BrokenExecutor)
            self.assertTrue(isinstance(waits.exception(), gpumux.Error))
        with tempfile.TemporaryDirectory() as gate, gpumux.Executor(slots=1) as executor:
            runs, waits = (executor.submit(tasks.await_file, os.path.join(gate, name)) for name in ("came", "never"))
            tasks.await_true(runs.running)
            shutil.rmtree(executor._folder)
            pathlib.Path(gate, "came").touch()
            for future in runs, waits:
                self.assertIsInstance(future.exception(60), concurrent.futures.BrokenExecutor)

    def test_a_dead_command_breaks_it(self):
        with gpumux.Executor(slots=1) as executor:
            runs = executor.submit(tasks.await_file, "/no/such/file")
            tasks.await_true(runs.running)
            executor._calls.command.process.kill()
            self.assertIsInstance(runs.exception(60), concurrent.futures.BrokenExecutor)
            executor._reader.join()
            with self.assertRaises(concurrent.futures.BrokenExecutor):
                executor.submit(tasks.double, 1)

    def test_an_executor_that_nobody_holds_finishes_its_calls(self):
        self.assertEqual(gpumux.Executor(1).submit(tasks.double, 3).result(60), 6)

        def mapped():
            return gpumux.Executor(1).map(tasks.double, range(5), timeout=60)

        self.assertEqual(list(mapped()), [0, 2, 4, 6, 8])
        futures = []
        for n in range(3):
            executor = gpumux.Executor(1)
            futures.append(executor.submit(tasks.double, n))
        folder = executor._folder
        del executor
        self.assertEqual([future.result(60) for future in futures], [0, 2, 4])
        tasks.await_true(lambda: not os.path.exists(folder))

    def test_a_program_that_ends_finishes_its_calls(self):
        """Its forked children end without them."""
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "script.py")
            script.write_text(textwrap.dedent("""
                import os, pathlib, sys
                import gpumux

                def mark(n):
                    pathlib.Path(__file__).with_name(str(n)).touch()

                if __name__ == "__main__":
                    executor = gpumux.Executor(1)
                    first = executor.submit(mark, 0)
                    if os.fork() == 0:
                        sys.exit()
                    os.wait()
                    for n in range(1, 20):
                        executor.submit(mark, n)
                    print(executor._folder)
            """))
            ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=100)
            self.assertEqual((ran.returncode, ran.stderr), (0, ""))
            self.assertEqual({name for name in os.listdir(folder) if name.isdigit()}, set(map(str, range(20))))
            self.assertFalse(os.path.exists(ran.stdout.strip()))

    def test_one_interrupt_is_enough(self):
        """For a program that waits for calls which do not end."""
        program = """
            import gpumux
            from tests import tasks

            executor = gpumux.Executor(1)
            call = executor.submit(tasks.await_file, "/no/such/file")
            tasks.await_true(call.running)
            print("waits", flush=True)
            WAIT
        """
        for wait in "with executor: call.result()", "pass":
            with self.subTest(wait):
                interrupted(program.replace("WAIT", wait))

    def test_a_forked_child_keeps_nothing_open(self):
        executor = gpumux.Executor(slots=1)
        executor.submit(tasks.double, 1).result()
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(writer)
            os.read(reader, 1)  # until the parent closes its end
            os._exit(0)
        executor.shutdown(wait=False)
        executor._reader.join(60)
        ended = not executor._reader.is_alive()
        os.close(writer)
        os.waitpid(child, 0)
        os.close(reader)
        self.assertTrue(ended)

    def test_callbacks_that_submit(self):
        """Nobody who submits waits for the command, which may wait for the callback."""
        with gpumux.Executor(slots=2) as executor:
            more, given = [], threading.Semaphore(0)

            def again(future):
                more.append(executor.submit(tasks.double, future.result()))
                given.release()

            for n in range(3000):
                executor.submit(tasks.double, n).add_done_callback(again)
            for _ in range(3000):
                self.assertTrue(given.acquire(timeout=100))
            self.assertEqual({future.result(100) for future in more}, {4 * n for n in range(3000)})
            large = [os.urandom(8 << 20) for _ in range(5)]
            self.assertEqual([future.result(100) for future in [executor.submit(tasks.same, each) for each in large]], large)

    def test_an_initializer(self):
        own = []
        with gpumux.Executor(max_workers=2, initializer=lambda n: tasks.prepare(n, own), initargs=(3,)) as executor:
            found = list(executor.map(tasks.prepared_with, range(20), timeout=60))
        self.assertEqual(found, [[(3, own)]] * 20, "once per process")
        with gpumux.Executor(1, initializer=tasks.unprepared) as executor:
            broken = executor.submit(tasks.double, 1).exception(60)
            self.assertIsInstance(broken, concurrent.futures.BrokenExecutor)
            self.assertRegex(str(broken), "the executor's initializer raised OSError: no model here")
            with self.assertRaisesRegex(concurrent.futures.BrokenExecutor, "no model here"):
                executor.submit(tasks.double, 1)
        with self.assertRaisesRegex(TypeError, "slots=1 and max_workers=2 are one option"):
            gpumux.Executor(1, max_workers=2)

    def test_a_script(self):
        """What the script defines is the script's own when it comes back."""
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "script.py")
            script.write_text(textwrap.dedent("""
                import gpumux

                class Failed(Exception):
                    pass

                class Made:
                    pass

                def make(fail):
                    if fail:
                        raise Failed("on purpose")
                    return Made()

                def known(made):
                    return type(made) is Made

                if __name__ == "__main__":
                    with gpumux.Executor(slots=1) as executor:
                        made = executor.submit(make, False).result()
                        print(type(made) is Made, executor.submit(known, made).result())
                        try:
                            executor.submit(make, True).result()
                        except Failed as error:
                            print(error)
            """))
            ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
            self.assertEqual(ran.stdout, "True True\non purpose\n", ran.stderr)

    def test_what_cannot_start(self):
        with gpumux.Executor(memory="nonsense") as executor:
            with self.assertRaisesRegex(gpumux.Error, "^memory='nonsense': "):
                executor.submit(tasks.double, 1).result()
            executor._reader.join()
            with self.assertRaisesRegex(gpumux.Error, "memory="):
                executor.submit(tasks.double, 2)

    def test_futures_tell_the_truth(self):
        with tempfile.TemporaryDirectory() as folder, gpumux.Executor(slots=1) as executor:
            came = os.path.join(folder, "came")
            first, second, third = (executor.submit(tasks.await_file, came) for _ in range(3))
            tasks.await_true(first.running)
            self.assertEqual([(each.running(), each.done()) for each in (first, second)], [(True, False), (False, False)])
            self.assertRegex(repr(first), "state=running")
            self.assertRegex(repr(second), "state=pending")
            self.assertEqual([first.cancel(), second.cancel(), second.cancel()], [False, True, True])
            self.assertTrue(second.cancelled())
            self.assertEqual(concurrent.futures.wait([second]).done, {second})
            self.assertRegex(repr(executor), "^<gpumux.Executor: 3 calls wait or run>$")
            pathlib.Path(came).touch()
            self.assertEqual([first.result(), third.result()], ["came", "came"])
            self.assertEqual([first.running(), first.cancel(), third.cancel()], [False, False, False])
            with self.assertRaises(concurrent.futures.CancelledError):
                second.result()
            self.assertEqual(executor.submit(tasks.double, 1).result(), 2)
            self.assertEqual(os.listdir(executor._folder), [])

    def test_a_call_that_waits_is_cancelled_or_runs(self):
        """Whoever is first decides, and every future has an end."""
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as gate:
            wait = os.path.join(gate, "open")
            with gpumux.Executor(slots=2) as executor:
                futures = [executor.submit(tasks.mark, (folder, n, wait if n in (150, 151) else "")) for n in range(300)]
                next(concurrent.futures.as_completed(futures))
                cancelled = {n for n, future in enumerate(futures) if future.cancel()}
                pathlib.Path(wait).touch()
            self.assertTrue(cancelled, "all calls had begun")
            self.assertTrue(all(future.done() for future in futures))
            self.assertEqual({int(name) for name in os.listdir(folder)}, set(range(300)) - cancelled)
            self.assertEqual({future.result() for n, future in enumerate(futures) if n not in cancelled}, set(range(300)) - cancelled)

    def test_shutdown_cancels_what_waits(self):
        with tempfile.TemporaryDirectory() as folder:
            executor = gpumux.Executor(slots=1)
            runs, waits = (executor.submit(tasks.mark, (folder, n, "came")) for n in range(2))
            tasks.await_true(runs.running)
            executor.shutdown(wait=False, cancel_futures=True)
            self.assertEqual((runs.done(), waits.cancelled()), (False, True))
            pathlib.Path(folder, "came").touch()
            executor.shutdown()
            self.assertEqual((runs.result(), sorted(os.listdir(folder))), (0, ["0", "came"]))

    def test_ended_before_its_calls(self):
        executor = gpumux.Executor(slots=1)
        runs = executor.submit(tasks.await_file, "/no/such/file")
        tasks.await_true(runs.running)
        executor.terminate_workers()
        self.assertIsInstance(runs.exception(), concurrent.futures.BrokenExecutor)
        self.assertRegex(str(runs.exception()), "ended by terminate_workers")
        self.assertFalse(os.path.exists(executor._folder))
