"""Tries the one device that it sees: starts CUDA, makes a context, copies 1 MiB there and back, and prints as JSON what it found.

It needs Python 3.9 and the driver's library, and nothing of gpumux.
"""

import ctypes
import json
import os
import sys
import time

SIZE = 1 << 20
OUT_OF_MEMORY, NO_DEVICE = 2, 100
# The loader's path, then where WSL, managed Kubernetes and NixOS put the driver's libraries: as in gpu/nvml_linux.go.
FOLDERS = ("", "/usr/lib/wsl/lib/", "/usr/local/nvidia/lib64/", "/run/opengl-driver/lib/")


class Failed(Exception):
    pass


def load(name):
    for folder in FOLDERS:
        try:
            return ctypes.CDLL(folder + name)
        except OSError as error:
            why = error
    raise why


def text_of(cuda, code):
    text = ctypes.c_char_p()
    cuda.cuGetErrorString(code, ctypes.byref(text))
    return (text.value or b"unknown error").decode()


def held(uuid):
    """The bytes that this process holds on the device as the driver lists them, or None where it lists no processes. In a container it
    may list this one under another number, with 0 bytes, or not at all: that is 0.
    """
    try:
        nvml = load("libnvidia-ml.so.1")
        device = ctypes.c_void_p()
        if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(device)):
            return None
        lists = [nvml.nvmlDeviceGetComputeRunningProcesses_v3]
    except (OSError, AttributeError):
        return None
    if hasattr(nvml, "nvmlDeviceGetMPSComputeRunningProcesses_v3"):
        lists.append(nvml.nvmlDeviceGetMPSComputeRunningProcesses_v3)
    most = 0
    for number, processes in enumerate(lists):
        count = ctypes.c_uint(1024)
        # A process: its number, its bytes, its GPU instance and its compute instance.
        rows = (ctypes.c_ulonglong * (3 * count.value))()
        if processes(device, ctypes.byref(count), rows):
            if number == 0:
                return None
            continue
        for i in range(count.value):
            if rows[3 * i] & 0xFFFFFFFF == os.getpid() and rows[3 * i + 1] != (1 << 64) - 1:
                most = max(most, rows[3 * i + 1])
    return most


def probe(cuda, found):
    def call(name, *arguments):
        code = getattr(cuda, name)(*arguments)
        if code:
            found.update(code=code, text=text_of(cuda, code), call=name.removesuffix("_v2"))
            raise Failed

    count, device, context = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
    call("cuInit", ctypes.c_uint(0))
    call("cuDeviceGetCount", ctypes.byref(count))
    if count.value == 0:
        found.update(code=NO_DEVICE, text="no CUDA-capable device is detected", call="cuDeviceGetCount")
        raise Failed
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    own = held(os.environ["CUDA_VISIBLE_DEVICES"])
    found.update(context=own or 0, blind=own == 0)
    there, size = ctypes.c_uint64(), ctypes.c_size_t(SIZE)
    sent, back = ctypes.create_string_buffer(os.urandom(SIZE), SIZE), ctypes.create_string_buffer(SIZE)
    call("cuMemAlloc_v2", ctypes.byref(there), size)
    call("cuMemcpyHtoD_v2", there, sent, size)
    call("cuMemcpyDtoH_v2", back, there, size)
    if sent.raw != back.raw:
        found.update(text="1 MiB that was copied there came back with other contents", call="cuMemcpyDtoH")
        raise Failed
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    found.update(ok=True, free=free.value, total=total.value)


def main():
    began, found = time.monotonic(), {"ok": False}
    try:
        probe(load("libcuda.so.1"), found)
    except OSError as error:
        found["untried"] = str(error)
    except Failed:
        if found.get("code") == OUT_OF_MEMORY:
            # It answers, and others hold all that it has.
            found["ok"] = True
    found["seconds"] = time.monotonic() - began
    print(json.dumps(found))
    sys.stdout.flush()
    # The driver's own end may hang on a device that has failed.
    os._exit(0)


main()
