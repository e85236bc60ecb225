"""NVML through ctypes: each call that gpumux makes, with its code, its time and its raw answer.

Owns the library's handle in this process. Never interprets an answer: what a function is that is not there, or a code other than
0, is written down.
"""

import ctypes
import os
import time

PLACES = ("libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1", "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
          "/run/opengl-driver/lib/libnvidia-ml.so.1")
MOST = 64  # processes of a list
UNSET = 0xDEAD  # what a number is before the driver answers
uint, ulong, integer = ctypes.c_uint, ctypes.c_ulonglong, ctypes.c_int
# Calls with numbers as answers: the name, what is given first, the type of the answer, and whether its numbers are one structure.
NUMBERS = (
    ("nvmlDeviceGetMemoryInfo", (), ulong * 3, True), ("nvmlDeviceGetUtilizationRates", (), uint * 2, True),
    ("nvmlDeviceGetTemperature", (uint(0),), uint * 1, True), ("nvmlDeviceGetPowerUsage", (), uint * 1, True),
    ("nvmlDeviceGetTotalEnergyConsumption", (), ulong * 1, True), ("nvmlDeviceGetCurrentClocksThrottleReasons", (), ulong * 1, True),
    ("nvmlDeviceGetComputeMode", (), integer * 1, True), ("nvmlDeviceGetPersistenceMode", (), integer * 1, True),
    ("nvmlDeviceGetMigMode", (), uint * 2, False), ("nvmlDeviceGetMaxMigDeviceCount", (), uint * 1, True),
    ("nvmlDeviceGetCudaComputeCapability", (), integer * 2, False), ("nvmlDeviceGetMinorNumber", (), uint * 1, True),
    ("nvmlDeviceGetAccountingMode", (), integer * 1, True), ("nvmlDeviceGetVirtualizationMode", (), integer * 1, True),
    ("nvmlDeviceGetNvLinkState", (uint(0),), integer * 1, True),
)


def ms(began):
    return round(1000 * (time.perf_counter() - began), 3)


def device_files():
    """The device files that this process has open, and whether a program that it starts would inherit them."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink("/proc/self/fd/" + fd)
            if path.startswith("/dev/nvidia"):
                found.append({"path": path, "inherited": os.get_inheritable(int(fd))})
        except OSError:  # closed meanwhile
            pass
    return found


class Row(ctypes.Structure):
    _fields_ = [("pid", uint), ("bytes", ulong), ("gi", uint), ("ci", uint)]


class NVML:
    """The library, begun, with its devices' handles; none where it cannot be had."""

    def __init__(self):
        self.name, self.library, self.devices, failures = "", None, [], []
        for place in PLACES:
            try:
                self.library, self.name = ctypes.CDLL(place), place
                break
            except OSError as error:
                failures.append(str(error))
        self.started = {"failed": failures} if self.library is None else self.call("nvmlInit_v2")
        if self.started.get("code") == 0:
            count = uint()
            self.count = self.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
            for index in range(count.value):
                handle = ctypes.c_void_p()
                if self.call("nvmlDeviceGetHandleByIndex_v2", uint(index), ctypes.byref(handle)).get("code") == 0:
                    self.devices.append(handle)

    def call(self, name, *arguments):
        function = getattr(self.library, name, None)
        if function is None:
            return {"missing": True}
        began = time.perf_counter()
        code = function(*arguments)
        out = {"code": code, "ms": ms(began)}
        if code:
            say = self.library.nvmlErrorString
            say.restype = ctypes.c_char_p
            out["says"] = say(code).decode(errors="replace")
        return out

    def text(self, name, *arguments, most=96):
        buffer = ctypes.create_string_buffer(most)
        out = self.call(name, *arguments, buffer, uint(most))
        return {**out, "value": buffer.value.decode(errors="replace")}

    def system(self):
        version = integer(UNSET)
        return {"driver": self.text("nvmlSystemGetDriverVersion"), "nvml": self.text("nvmlSystemGetNVMLVersion"),
                "cuda": {**self.call("nvmlSystemGetCudaDriverVersion", ctypes.byref(version)), "value": version.value}}

    def uuid(self, device):
        return self.text("nvmlDeviceGetUUID", device)["value"]

    def numbers(self, device, name, given, kind, whole):
        values = kind(*[UNSET] * kind._length_)
        step = ctypes.sizeof(kind._type_)
        places = [ctypes.byref(values)] if whole else [ctypes.byref(values, i * step) for i in range(kind._length_)]
        return {**self.call(name, device, *given, *places), "value": list(values)}

    def memory(self, device):
        values = (ulong * 5)(40 | 2 << 24)
        out = self.call("nvmlDeviceGetMemoryInfo_v2", device, ctypes.byref(values))
        return {**out, **dict(zip(("total", "reserved", "free", "used"), values[1:]))}

    def used(self, device):
        memory = self.memory(device)
        return memory["total"] - memory["free"]

    def list(self, device, kind):
        """A list of processes, as the newest version of its function gives it."""
        rows, count = (Row * MOST)(), uint(MOST)
        out = self.call(f"nvmlDeviceGet{kind}RunningProcesses_v3", device, ctypes.byref(count), ctypes.byref(rows))
        if out.get("code") == 0:
            out["rows"] = [{"pid": row.pid, "bytes": row.bytes, "gi": row.gi, "ci": row.ci,
                            "name": self.text("nvmlSystemGetProcessName", uint(row.pid), most=256)} for row in rows[: count.value]]
        return out

    def now(self, device):
        return {"memory": self.memory(device), "used": self.used(device),
                "lists": {kind: self.list(device, kind) for kind in ("Compute", "Graphics", "MPSCompute")}}

    def all_of(self, device):
        address = ctypes.create_string_buffer(128)
        out = {"uuid": self.text("nvmlDeviceGetUUID", device), "name": self.text("nvmlDeviceGetName", device),
               "pci": self.call("nvmlDeviceGetPciInfo_v3", device, address), "now": self.now(device)}
        out["pci"]["value"] = address.raw[36:68].rstrip(b"\0").decode(errors="replace")
        for name, given, kind, whole in NUMBERS:
            out[name] = self.numbers(device, name, given, kind, whole)
        return out
