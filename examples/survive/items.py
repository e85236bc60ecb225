"""The items: what holds memory of the host, what holds memory of a GPU, and what ruins its process for the GPU."""

import time

STEP = 16 << 20
HOLD = 0.1


def host(item):
    """Holds so many bytes of the host, which it takes step by step."""
    held = []
    for _ in range(0, item["bytes"], STEP):
        held.append(bytearray(b"x") * STEP)
        time.sleep(0.01)
    time.sleep(HOLD)
    return sum(map(len, held))


def device(item):
    """Holds so many bytes of the GPU."""
    import torch

    held = torch.empty(item["bytes"], dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    time.sleep(HOLD)
    del held
    return item["bytes"]


def ruin(item):
    """Looks a place up in a tensor. One that is not there ends in an assertion on the GPU, and with it the context of its process."""
    import torch

    place = torch.full((1,), item["place"], dtype=torch.int64, device="cuda")
    torch.zeros(1, device="cuda")[place]
    torch.cuda.synchronize()
    time.sleep(HOLD)
    return item["place"]
