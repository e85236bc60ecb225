"""What NVIDIA's libraries in a folder say of themselves, without a device: answers.py cuda|nvml FOLDER

cuda: each error of the driver API with its name and text, and what cuInit returns here. nvml: each error with its text, and what
nvmlInit returns here.
"""

import ctypes
import os
import sys


def cuda(folder):
    library = ctypes.CDLL(os.path.join(folder, "libcuda.so.1"))
    for code in range(1000):
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        if library.cuGetErrorName(code, ctypes.byref(name)) == 0 and library.cuGetErrorString(code, ctypes.byref(text)) == 0:
            print(code, name.value.decode(), text.value.decode())
    print("cuInit", library.cuInit(0))


def nvml(folder):
    library = ctypes.CDLL(os.path.join(folder, "libnvidia-ml.so.1"))
    library.nvmlErrorString.restype = ctypes.c_char_p
    unknown = library.nvmlErrorString(998)
    for code in [*range(100), 999]:
        text = library.nvmlErrorString(code)
        if text != unknown or code == 999:
            print(code, text.decode())
    print("nvmlInit", library.nvmlInit_v2())


{"cuda": cuda, "nvml": nvml}[sys.argv[1]](sys.argv[2])
