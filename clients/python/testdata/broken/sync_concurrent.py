import gpumux


@gpumux.concurrent(max=64)
def f(item):
    return item
