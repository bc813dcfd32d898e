"""As sfake_slow, and then it fails."""

import time

time.sleep(0.1)
raise RuntimeError("no driver")
