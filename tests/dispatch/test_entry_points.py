"""Other people's kernels: a distribution on the path, in a process of its own."""

from dispatch_fakes import install, python

RECORDS = """
from sparseformats.dispatch.record import KernelRecord, Requirement, checks
RECORDS = [
    KernelRecord("acme-fast", "matmul", ("csr",), "acme:run", cost=lambda q: 1,
                 checks=(checks.divides("k", 4),)),
    KernelRecord("acme-new", "matmul", ("csr",), "acme:run", cost=lambda q: 0,
                 requires=(Requirement("acme", "2.0"),)),
]
def run(): ...
"""
POINT = "[sparseformats.kernels]\nacme = acme:RECORDS\n"
SHOW = """
import sys
from sparseformats.dispatch import *
import sparseformats_kernels
sparseformats_kernels.BACKENDS = ()
assert "importlib.metadata" not in sys.modules
for k in (8, 6):
    print(explain(Query("matmul", "csr", k=k)))
"""


def test_chosen_refused_with_a_reason_and_too_old(tmp_path):
    install(tmp_path, "acme", "1.5", RECORDS, entry_points=POINT)
    out = python(SHOW, path=[tmp_path])
    first, second = out.split("matmul: csr")[1:]
    assert "chosen: acme-fast (cost model)" in first
    assert "needs acme >= 2.0, has acme 1.5 [package-too-old]" in first
    assert "no kernel is eligible" in second
    assert "needs K % 4 == 0, has K = 6 [divisibility]" in second


def test_broken_on_import(tmp_path):
    install(tmp_path, "acme", "1.5", "raise OSError('no driver')", entry_points=POINT)
    out = python(SHOW, path=[tmp_path])
    assert out.count("KernelLoadWarning: kernels of acme (entry point acme:RECORDS)") == 1
    assert "OSError: no driver [backend-failed]" in " ".join(out.split())


def test_unreadable_metadata_of_somebody_stops_nobody(tmp_path):
    install(tmp_path, "acme", "1.5", entry_points="[sparseformats.kernels]\nnonsense\n")
    out = python(SHOW, path=[tmp_path])
    assert "entry points sparseformats.kernels" in out
    assert "[backend-failed]" in out


def test_wrong_kinds_of_offer(tmp_path):
    points = "[sparseformats.kernels]\na = acme:NUMBER\nb = acme:STRINGS\nc = acme:ONE\n"
    body = f"{RECORDS}\nNUMBER, STRINGS, ONE = 3, ['a'], RECORDS[0]"
    install(tmp_path, "acme", "1.5", body, entry_points=points)
    out = " ".join(python(SHOW, path=[tmp_path]).split())
    assert "TypeError: expected a KernelRecord or several, got int" in out
    assert "TypeError: expected KernelRecord objects, one is str" in out
    assert "chosen: acme-fast" in out
