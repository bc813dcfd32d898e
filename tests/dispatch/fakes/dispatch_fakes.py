"""Makers of records and installed packages that exist only in tests."""

import os
import subprocess
import sys
import threading
from pathlib import Path

from sparseformats.dispatch import KernelRecord, Query

ROOT = Path(__file__).parents[3]
Q = Query("matmul", "csr", m=6, k=50, n=3, nnz=20, a_dtype="float32", x_dtype="float32")


def record(name="good", op="matmul", formats=("csr",), target="sfake_good:kernel", **facts):
    facts.setdefault("cost", lambda query: 10.0)
    return KernelRecord(name, op, formats, target, **facts)


def costs(value):
    return lambda query: value


def install(path, name, version, body="", *, entry_points="", module=None):
    """Install a distribution into a folder; `body` None leaves its module out."""
    info = Path(path) / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if entry_points:
        (info / "entry_points.txt").write_text(entry_points)
    if body is not None:
        (Path(path) / f"{module or name.replace('-', '_')}.py").write_text(body)


def python(code, *, path=(), **environment):
    """Run code in a new interpreter; its output, or an AssertionError with what went wrong."""
    paths = [*map(str, path), str(Path(__file__).parent), str(ROOT), str(ROOT / "kernels")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment}
    command = [sys.executable, "-W", "always", "-c", code]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def race(count, call):
    """What as many threads get from a call that they make at the same time."""
    barrier, results = threading.Barrier(count), []

    def work():
        barrier.wait()
        try:
            results.append(call())
        except Exception as error:  # noqa: BLE001 - the test looks at it
            results.append(error)

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
