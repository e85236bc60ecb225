"""How a plugin for GPUs starts, after jaxlib 0.10.2."""

import os


def generate_pjrt_gpu_plugin_options():
    options = {}
    fraction, deprecated = os.getenv("XLA_CLIENT_MEM_FRACTION", ""), os.getenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "")
    if fraction and deprecated:
        raise ValueError(
            "XLA_CLIENT_MEM_FRACTION is specified together with XLA_PYTHON_CLIENT_MEM_FRACTION. Remove the latter one, it is deprecated."
        )
    if fraction or deprecated:
        options["memory_fraction"] = float(fraction or deprecated)
    return options
