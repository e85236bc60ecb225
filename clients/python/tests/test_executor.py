import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import threading
import traceback
import unittest

import gpumux

from . import tasks


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
        self.assertIsInstance(runs.exception(), gpumux.Error)
        self.assertFalse(os.path.exists(executor._folder))
