"""A kernel that takes its time to import and counts how often that happens."""

import sys
import time

sys.sfake_imports = getattr(sys, "sfake_imports", 0) + 1
time.sleep(0.2)


def kernel():
    return sys.sfake_imports
