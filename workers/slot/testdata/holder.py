"""Holds the lock of its own memory for seconds, which whoever reads its environment waits for: one thread has the kernel map many
pages in one call, another waits to map one. It begins with a line of its input, says when it begins and when it is over, and ends
with another line."""
import ctypes
import mmap
import sys
import threading

libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
NORESERVE, NOHUGEPAGE, POPULATE_READ = 0x4000, 15, 22
size = int(sys.argv[1]) << 30
at = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE, -1, 0)
libc.madvise(at, size, NOHUGEPAGE)


def wait_to_map():
    while not over:
        mmap.mmap(-1, 4096).close()


sys.stdin.readline()
over = False
threading.Thread(target=wait_to_map).start()
print("begun", flush=True)
failed = libc.madvise(at, size, POPULATE_READ)
over = True
print("failed" if failed else "over", flush=True)
sys.stdin.readline()
