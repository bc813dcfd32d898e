"""A backend."""

from sparseformats.dispatch.record import KernelRecord

RECORDS = (
    KernelRecord("fake-backend-kernel", "matmul", ("csr",), "sfake_good:kernel", cost=lambda q: 5),
)
