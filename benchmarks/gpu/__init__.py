"""The GPU benchmark: fixed cases, peers, timing, roofline, rows. `benchmarks.run` runs it."""
