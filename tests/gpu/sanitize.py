"""Every GPU kernel on small shapes, to be watched by compute-sanitizer.

``compute-sanitizer --tool memcheck --error-exitcode 9 python -m tests.gpu.sanitize`` runs the
kernels under one tool. ``python -m tests.gpu.sanitize --under memcheck,racecheck --json FILE`` runs
itself under each tool, and a planted bug that memcheck must find, and writes what came out:
exit status 0 means clean, 1 that something was found (or a planted bug was not), 3 that the tool
does not run on this machine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOUND, UNSUPPORTED = 9, 3
# Every array gets memory of exactly its size, so that the end of one is known.
PATHS = [".", "kernels", *filter(None, [os.environ.get("PYTHONPATH")])]
ENVIRONMENT = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "PYTHONPATH": os.pathsep.join(PATHS)}


def calls(case: Any, device: str) -> list[dict[str, Any]]:
    """Run one kernel on small shapes; what was served and what was refused."""
    import sparseformats as sf
    from tests.gpu.kernels import dtypes_of, example, flushes, formats_of, record_of
    from tests.kernels.triton.matrices import dense
    from tests.kernels.triton.ordeal import Subject

    record, rows = record_of(case.op, case.kernel), []
    dtypes = [d for d in ("float16", "float32") if d in dtypes_of(case)]
    dtypes = dtypes or dtypes_of(case)[:1]
    layouts = itertools.cycle([(33, False), (64, True), (1, False)])
    place = {"library": case.library, "device": device}
    # The tools slow everything down: vendors' kernels and CuPy's way to ours get one block size.
    ours = case.library == "torch" and not flushes(case)
    blocks = ((64, 64), (16, 16), (24, 24)) if ours else ((16, 16),)
    formats = formats_of(case) if case.library == "torch" else formats_of(case)[:1]
    for format, dtype in itertools.product(formats, dtypes):
        for block in blocks:
            n, transposed = next(layouts)
            subject = Subject(case.kernel, device)
            A = example(case, format, (130, 150), block, dtype, device=device)
            X = dense((n, A.shape[1]) if transposed else (A.shape[1], n), dtype, **place)
            promise = {"assume_finite": True}
            subject.matmul(A, X.T if transposed else X, **promise)
            bias = dense((A.shape[0],), dtype, **place)
            if record.fuses("bias+relu"):
                options = {"activation": "relu", **promise}
                tokens = X if transposed else X.T
                subject.run(sf.linear, tokens, A, bias, **options)
            if record.fuses("scale"):
                tokens = X if transposed else X.T
                subject.run(sf.linear, tokens, A, scale_a=0.5, out_dtype="float16")
            A.lib.to_numpy(bias)  # waits for the device, so that a fault is told here
            row = {"kernel": case.kernel, "library": case.library, "format": format}
            row |= {"block": list(block), "dtype": dtype, "n": n, "served": subject.served}
            rows.append({**row, "refused": dict(subject.refused)})
    return rows


def workload(device: str, planted: str | None, kernels: str) -> list[dict[str, Any]]:
    """All kernels of products whose names begin so, or one with a planted bug."""
    from sparseformats import dispatch
    from tests.gpu.kernels import Case, cases
    from tests.kernels.triton import planted as plants

    if device.startswith("cuda"):
        import cupy

        cupy.cuda.set_allocator(None)
    if planted is None:
        chosen = [
            case
            for case in cases(device)
            if case.op == "matmul" and case.kernel.startswith(tuple(kernels.split(",")))
        ]
        return [row for case in chosen for row in calls(case, device)]
    record = plants.record(planted, device="cuda")
    with dispatch.temporary(record):
        return calls(Case("matmul", record.name, "torch"), device)


def under(
    tool: str, device: str, folder: Path, kernels: str, planted: str | None = None
) -> dict[str, Any]:
    """Run this module under a tool of compute-sanitizer; what it said."""
    inner = folder / f"{tool}{'-planted' if planted else ''}.json"
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", str(FOUND)]
    command += [
        sys.executable,
        "-m",
        "tests.gpu.sanitize",
        "--device",
        device,
        "--json",
        str(inner),
    ]
    command += ["--kernels", kernels, *(["--planted", planted] if planted else [])]
    row: dict[str, Any] = {"tool": tool, "planted": planted}
    try:
        done = subprocess.run(
            command,
            check=False,
            cwd=ROOT,
            env={**os.environ, **ENVIRONMENT},
            capture_output=True,
            text=True,
        )
    except OSError as error:
        return {**row, "status": "unsupported", "said": str(error)}
    text = done.stdout + done.stderr
    lines = [line for line in text.splitlines() if line.startswith("=========")]
    unsupported = "Device not supported" in text or not lines
    status = {0: "clean", FOUND: "found"}.get(done.returncode, "failed")
    kept = [line for line in lines if "ERROR SUMMARY" in line or "HAZARD" in line.upper()]
    said = kept + lines[:40] if status != "clean" else kept
    row |= {"status": "unsupported" if unsupported else status, "exit": done.returncode}
    row |= {"said": said, "tail": [] if status == "clean" else text.splitlines()[-15:]}
    cases = json.loads(inner.read_text())["cases"] if inner.exists() else []
    return {**row, "calls": sum(case["served"] for case in cases), "cases": cases}


def judge(rows: list[dict[str, Any]]) -> int:
    """Exit status: every real run is clean, and a planted bug was found."""
    if any(row["status"] == "unsupported" for row in rows):
        return UNSUPPORTED
    good = all(row["status"] == ("found" if row["planted"] else "clean") for row in rows)
    return 0 if good and all(row["planted"] or row["calls"] for row in rows) else 1


def write(path: str | None, document: dict[str, Any]) -> None:
    if path is not None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Run the workload, or run it under tools."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--under", default=None, help="tools, such as memcheck,racecheck")
    parser.add_argument("--planted", default=None, help="a bug of tests.kernels.triton.planted")
    parser.add_argument(
        "--kernels", default="", help="beginnings of names, such as triton,cusparse"
    )
    parser.add_argument("--json", default=None, help="file for the summary")
    options = parser.parse_args(arguments)
    if options.under is None:
        os.environ.update(ENVIRONMENT)
        rows = workload(options.device, options.planted, options.kernels)
        write(options.json, {"cases": rows})
        print(f"{sum(row['served'] for row in rows)} calls of {len(rows)} cases were served")
        return 0
    folder = Path(options.json).parent if options.json else Path(".")
    rows = [
        under(tool, options.device, folder, options.kernels) for tool in options.under.split(",")
    ]
    if "memcheck" in options.under:
        rows.append(under("memcheck", options.device, folder, "", "reads-beyond-n"))
    from tests.gpu.report import commit, versions

    status = judge(rows)
    write(
        options.json, {"commit": commit(), "versions": versions(), "status": status, "runs": rows}
    )
    for row in rows:
        print(
            f"{row['tool']}, planted {row['planted']}: {row['status']}, {row.get('calls', 0)} calls"
        )
    return status


if __name__ == "__main__":
    sys.exit(main())
