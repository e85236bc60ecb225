"""What a driver's library answers to what gpumux builds on: a line per call, with its code.

    answers.py cuda|nvml

It uses the first device that it sees, and changes no setting. The process ends without the library's own end.
"""

import ctypes
import os
import sys

MIB = 1 << 20
# What a call on the device may say, whose words gpumux shows and reads.
CODES = (0, 1, 2, 3, 46, 100, 101, 201, 214, 700, 802, 805, 806, 807, 808, 810, 999)
# Structures begin with their size and their version.
MEMORY_V2 = 40 | 2 << 24


def tell(what, code, says=""):
    print(f"{what}: {code}{' ' + says if says else ''}")


def cuda():
    library = ctypes.CDLL("libcuda.so.1")

    def call(what, name, *arguments):
        tell(what, getattr(library, name)(*arguments))

    count, device, context, there = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuDeviceGetCount before cuInit", "cuDeviceGetCount", ctypes.byref(count))
    call("cuInit with a flag", "cuInit", ctypes.c_uint(1))
    call("cuInit", "cuInit", ctypes.c_uint(0))
    call("cuDeviceGetCount", "cuDeviceGetCount", ctypes.byref(count))
    call("cuDeviceGet of one that is not there", "cuDeviceGet", ctypes.byref(device), ctypes.c_int(count.value))
    call("cuDeviceGet", "cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
    call("cuMemAlloc without a context", "cuMemAlloc_v2", ctypes.byref(there), ctypes.c_size_t(MIB))
    call("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", "cuCtxSetCurrent", context)
    call("cuMemGetInfo", "cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    call("cuMemAlloc of more than there is", "cuMemAlloc_v2", ctypes.byref(there), ctypes.c_size_t(total.value + MIB))
    call("cuMemAlloc after that", "cuMemAlloc_v2", ctypes.byref(there), ctypes.c_size_t(MIB))
    sent, back = ctypes.create_string_buffer(os.urandom(MIB), MIB), ctypes.create_string_buffer(MIB)
    call("cuMemcpyHtoD", "cuMemcpyHtoD_v2", there, sent, ctypes.c_size_t(MIB))
    call("cuMemcpyDtoH", "cuMemcpyDtoH_v2", back, there, ctypes.c_size_t(MIB))
    tell("the same bytes", int(sent.raw == back.raw))
    call("cuMemFree", "cuMemFree_v2", there)
    for number in CODES:
        text = ctypes.c_char_p()
        tell(f"cuGetErrorString of {number}", library.cuGetErrorString(number, ctypes.byref(text)), (text.value or b"nothing").decode())


def nvml():
    library, uint = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_uint
    device, none, count, number = ctypes.c_void_p(), ctypes.c_void_p(), uint(), uint()
    pair = (uint * 2)()
    memory, rows = (ctypes.c_ulonglong * 5)(), (ctypes.c_ulonglong * 96)()

    def call(what, *arguments, name=None):
        tell(what, getattr(library, name or what)(*arguments))

    call("nvmlInit_v2")
    call("nvmlDeviceGetCount_v2", ctypes.byref(count))
    call("nvmlDeviceGetHandleByIndex_v2", uint(0), ctypes.byref(device))
    call("of an index that is not there", count, ctypes.byref(none), name="nvmlDeviceGetHandleByIndex_v2")
    call("of a UUID that is not there", b"GPU-00000000-1111-2222-3333-444444444444", ctypes.byref(none), name="nvmlDeviceGetHandleByUUID")
    memory[0] = MEMORY_V2
    call("nvmlDeviceGetMemoryInfo_v2", device, memory)
    tell("total is reserved, free and used", int(memory[1] == sum(memory[2:])))
    for what in ("Compute", "Graphics", "MPSCompute"):
        rooms = uint(32)
        call(f"nvmlDeviceGet{what}RunningProcesses_v3", device, ctypes.byref(rooms), rows)
    call("nvmlDeviceGetComputeMode", device, ctypes.byref(number))
    call("nvmlDeviceGetMigMode", device, ctypes.byref(pair), ctypes.byref(pair, 4))
    call("nvmlDeviceGetUtilizationRates", device, pair)
    call("nvmlDeviceGetTemperature", device, uint(0), ctypes.byref(number))
    call("nvmlDeviceGetPowerUsage", device, ctypes.byref(number))
    call("nvmlDeviceGetTotalEnergyConsumption", device, rows)
    call("nvmlDeviceGetCurrentClocksThrottleReasons", device, rows)
    library.nvmlErrorString.restype = ctypes.c_char_p
    for number in (3, 6, 9, 10, 15):
        tell(f"nvmlErrorString of {number}", 0, library.nvmlErrorString(number).decode())


{"cuda": cuda, "nvml": nvml}[sys.argv[1]]()
sys.stdout.flush()
os._exit(0)
