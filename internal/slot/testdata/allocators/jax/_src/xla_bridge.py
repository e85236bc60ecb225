begun = False


def backends_are_initialized():
    return begun
