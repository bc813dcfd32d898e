"""Kernels that load."""


def kernel(x):
    return ("good", x)


def other(x):
    return ("other", x)


class Holder:
    inner = staticmethod(kernel)


nothing = None
