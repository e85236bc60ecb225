"""Keeps the random state of forked children apart.

Owns the list of generators with a seed from the system; each gets a new seed in every child, as in a new interpreter. Never touches a
generator that the task seeded itself. Does nothing by itself.
"""

from __future__ import annotations

import gc
import sys
from typing import Any, Callable

from .memory import AfterImport


class Chance:
    """The generators of a template."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._renew: list[Callable[[], Any]] = []
        # Seeds from the system; the generators of the standard library by identity, and whether the system seeded them.
        self._drawn: set[int] = set()
        self._seeded: dict[int, bool] = {}
        self._torch: Any = None
        self._hook: Any = None
        self._failure = ""

    def follow(self) -> None:
        """Record from now on where generators get their seeds."""
        actions = {"random": self._random, "numpy.random.bit_generator": self._numpy, "torch": self._first_torch}
        for name in [name for name in actions if name in sys.modules]:
            actions.pop(name)(sys.modules[name])
        self._hook = AfterImport(actions, self._fail)
        sys.meta_path.insert(0, self._hook)

    def settle(self) -> None:
        """After the import: find the generators that children must seed anew."""
        if self._failure:
            raise RuntimeError(self._failure)
        if self._hook in sys.meta_path:
            sys.meta_path.remove(self._hook)
        for undo in self._undo:
            undo()
        random, bits, torch = (sys.modules.get(name) for name in ("random", "numpy.random.bit_generator", "torch"))
        for found in gc.get_objects():
            kind = type(found)
            if random and issubclass(kind, random.Random):
                self._settle_random(random, found)
            elif bits and issubclass(kind, bits.BitGenerator):
                if self._from_system(kind, found):
                    self._renew.append(lambda found=found, kind=kind: setattr(found, "state", kind().state))
        if torch and self._torch is not None and torch.initial_seed() == self._torch:
            self._renew.append(torch.default_generator.seed)

    def _from_system(self, kind: Any, found: Any) -> bool:
        """Whether a generator of NumPy still has its seed from the system."""
        sequence = getattr(found, "seed_seq", None) or getattr(found, "_seed_seq", None)
        entropy = getattr(sequence, "entropy", None)
        # A list is a seed of the task's own.
        if not isinstance(entropy, int) or entropy not in self._drawn:
            return False
        now, first = (each.state.get("state") for each in (found, kind(sequence)))
        # The stream and the key stay the same as numbers are drawn, but not when the task sets another state.
        return all(str(now[part]) == str(first[part]) for part in ("inc", "key") if kind.__name__ != "MT19937" and part in first)

    def _fail(self, name: str, why: str) -> None:
        self._failure = f"the random state of {name} cannot be followed: {why}"

    def renew(self) -> None:
        """In a child: new seeds for the generators that the system had seeded."""
        for action in self._renew:
            action()

    def _random(self, random: Any) -> None:
        method, function, put, put_shared = random.Random.seed, random.seed, random.Random.setstate, random.setstate

        def seed(own: Any, a: Any = None, *more: Any, **named: Any) -> None:
            self._seeded[id(own)] = a is None
            method(own, a, *more, **named)

        def seed_shared(a: Any = None, *more: Any, **named: Any) -> None:
            self._seeded[id(random._inst)] = a is None
            function(a, *more, **named)

        def setstate(own: Any, state: Any) -> None:
            self._seeded[id(own)] = False
            put(own, state)

        def setstate_shared(state: Any) -> None:
            self._seeded[id(random._inst)] = False
            put_shared(state)

        random.Random.seed, random.seed, random.Random.setstate, random.setstate = seed, seed_shared, setstate, setstate_shared

        def undo() -> None:
            random.Random.seed, random.seed, random.Random.setstate, random.setstate = method, function, put, put_shared

        self._undo.append(undo)

    def _settle_random(self, random: Any, found: Any) -> None:
        by_system = self._seeded.get(id(found))
        if found is random._inst:
            # The standard library seeds this one anew after a fork, whoever seeded it.
            if by_system is False:
                state = found.getstate()
                self._renew.append(lambda: found.setstate(state))
            else:
                self._renew.append(found.seed)
        elif by_system:
            self._renew.append(found.seed)

    def _numpy(self, bits: Any) -> None:
        draw = bits.randbits

        def randbits(n: int) -> int:
            drawn = draw(n)
            self._drawn.add(drawn)
            return drawn

        bits.randbits = randbits
        self._undo.append(lambda: setattr(bits, "randbits", draw))

    def _first_torch(self, torch: Any) -> None:
        self._torch = torch.initial_seed()
