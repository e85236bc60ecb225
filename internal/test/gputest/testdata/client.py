"""A client for the tests of MPS: makes a context on the device that it sees, then does what it is told, one word per line.

  free      prints the free and the total bytes
  alloc N   allocates so many bytes
  illegal   runs a kernel that writes outside of its memory
  spin      runs a kernel that never ends

Each line is answered with what it printed, or with the number of the CUDA error.
"""

import ctypes
import sys

PTX = b""".version 6.0
.target sm_50
.address_size 64
.visible .entry illegal() {
  .reg .b64 %a;
  .reg .b32 %v;
  mov.u64 %a, 16;
  mov.u32 %v, 1;
  st.global.u32 [%a], %v;
  ret;
}
.visible .entry spin() {
AGAIN:
  bra.uni AGAIN;
}
"""
cuda = ctypes.CDLL("libcuda.so.1")
allocated = ctypes.c_uint64()


class Failed(Exception):
    pass


def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        raise Failed(code)


def begin():
    device, context = ctypes.c_int(), ctypes.c_void_p()
    call("cuInit", ctypes.c_uint(0))
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)


def run(kernel):
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    call("cuModuleLoadData", ctypes.byref(module), PTX)
    call("cuModuleGetFunction", ctypes.byref(function), module, kernel.encode())
    call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, None, None)
    print("running", flush=True)
    call("cuCtxSynchronize")


def obey(words):
    if words[0] == "begin":
        begin()
    elif words[0] == "free":
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        # On a ruined context this fails too.
        call("cuCtxSynchronize")
        call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return f"{free.value} {total.value}"
    elif words[0] == "alloc":
        call("cuMemAlloc_v2", ctypes.byref(allocated), ctypes.c_size_t(int(words[1])))
    else:
        run(words[0])
    return "done"


for line in sys.stdin:
    try:
        print(obey(line.split()), flush=True)
    except Failed as failed:
        print("error", failed, flush=True)
