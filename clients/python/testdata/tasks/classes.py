"""Classes that are made with arguments, and that end with their process."""

import gpumux


class Scale:
    def __init__(self, factor, *, offset=0):
        self.factor, self.offset = factor, offset

    def __call__(self, x):
        return self.factor * x + self.offset


class Fields:
    def __init__(self, **fields):
        self.fields = fields

    def __call__(self, x):
        return self.fields


class Module:
    """As torch.nn.Module."""

    def __init__(self, *args, **kwargs):
        if args or kwargs:
            raise TypeError("a module has no arguments")

    def __call__(self, x):
        return gpumux.arg()


class Closes:
    def __call__(self, x):
        self.how = x
        return x

    def close(self):
        print("closing", flush=True)
        if self.how == "raises":
            raise ValueError("no way out")
        if self.how == "exits":
            raise SystemExit(3)


class Within(Closes):
    def __enter__(self):
        print("entered", flush=True)

    def __exit__(self, *error):
        print("left", error, flush=True)
        super().close()

    def close(self):
        print("closed beside it", flush=True)


class Awaits(Closes):
    async def close(self):
        super().close()


class Resident:
    """Its method is the task."""

    def scale(self, x):
        return 2 * x

    def close(self):
        print("closing", flush=True)


resident = Resident()
