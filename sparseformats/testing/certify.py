"""Certification: hold a registered kernel, or a whole format, to every law on drawn examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings, strategies as st

from sparseformats import dispatch, reference
from sparseformats._dtypes import accumulator
from sparseformats.dispatch import KernelRecord
from sparseformats.errors import NoKernelError
from sparseformats.testing import laws
from sparseformats.testing._memory import unchanged
from sparseformats.testing.operands import LAYOUTS, dense_operands
from sparseformats.testing.products import check_product, rounded_here
from sparseformats.testing.strategies import FORMATS, blocksizes, matrices

__all__ = ["Certificate", "certify_format", "certify_kernel"]

_OUT = [None, *(layout for layout in LAYOUTS if layout != "broadcast")]
_SCALARS = [(1, 0), (2, 0), (1, 1), (-1, 2)]
_ROUNDOFF = {"tf32": 2.0**-11, None: 0.0}


@dataclass
class Certificate:
    """What a certification has run.

    Attributes
    ----------
    name : str
        Kernel or format.
    runs : Counter
        Calls that the kernel served and that obeyed every law, by format and value type.
    refusals : Counter
        Calls that it refused, by the codes of its reasons.
    """

    name: str
    runs: Counter[tuple[str, str]] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)

    @property
    def served(self) -> set[tuple[str, str]]:
        """Pairs of format and value type that were run at least once."""
        return set(self.runs)


def certify_kernel(
    kernel: str | KernelRecord,
    op: str = "matmul",
    *,
    formats: str | Sequence[str] | None = None,
    flush: bool = False,
    examples: int | None = None,
    **drawn: Any,
) -> Certificate:
    """Compare a kernel with the reference on drawn matrices, operands, layouts and scalars.

    Every result must be within the error bound of the record's tolerance, and the kernel that ran
    must be the one under test. One that says it can (`KernelRecord.wide`) must also leave half
    types in float32. Calls that it refuses, giving reasons, are counted.

    Parameters
    ----------
    kernel : str or KernelRecord
        A registered kernel's name, or a record to register while it is certified.
    op : str
        Its operation, if named: ``"matmul"``, ``"sddmm"``, ``"spgemm"``, a conversion such as
        ``"convert:csr->bsr"``, or what a conversion plan runs, such as
        ``"plan_conversion:csr->bsr"``.
    formats : str or sequence of str, optional
        Formats to draw; by default those that the record serves.
    flush : bool
        Whether the kernel may flush subnormals to zero.
    examples : int, optional
        Number of examples; by default that of the active Hypothesis profile.
    **drawn
        Options of `matrices`: dtypes, library, device, shapes, blocksizes, values.

    Returns
    -------
    Certificate

    Raises
    ------
    AssertionError
        A wrong result, another kernel that ran, or no example that the kernel served.

    Examples
    --------
    >>> from sparseformats.testing import certify_kernel
    >>> certificate = certify_kernel("reference", formats="csr", dtypes="float64", examples=5)
    >>> certificate.served
    {('csr', 'float64')}
    """
    if isinstance(kernel, KernelRecord):
        with dispatch.temporary(kernel):
            return certify_kernel(
                kernel.name, kernel.op, formats=formats, flush=flush, examples=examples, **drawn
            )
    record = next((r for r in dispatch.records(op) if r.name == kernel), None)
    if record is None:
        raise ValueError(f"no kernel {kernel!r} of {op!r} is registered")
    certificate = Certificate(kernel)
    found = matrices(_served(record) if formats is None else formats, **drawn)
    values = drawn.get("values", "any")
    if op.startswith("convert:"):
        _certify_conversion(record, found, certificate, examples)
    elif op in ("sddmm", "spgemm") or op.startswith("plan_conversion:"):
        _certify_sparse(record, found, certificate, values, flush, examples)
    else:
        _certify_product(record, found, certificate, values, flush, examples)
    if not certificate.runs:
        raise AssertionError(
            f"{kernel} served no example; it refused: {dict(certificate.refusals)}"
        )
    return certificate


def _served(record: KernelRecord) -> list[str]:
    """Formats that the strategies draw and the record may serve."""
    every = [*FORMATS, "bsr.T", "blocked_ell.T", "n:m.T"]
    named = [name for name in record.formats if name in every or ":" in name]
    return named or every


def _run(law: Any, examples: int | None) -> None:
    """Run a Hypothesis test."""
    most, every = examples or settings().max_examples, list(HealthCheck)
    settings(max_examples=most, deadline=None, suppress_health_check=every)(law)()


def _certify_product(
    record: KernelRecord,
    drawn: Any,
    certificate: Certificate,
    values: Any,
    flush: bool,
    examples: int | None,
) -> None:
    bound = _bound(record, flush)
    finite = isinstance(values, str) and values != "any"
    precision = needed_precision(record)

    def law(A: Any, data: Any, left: bool, out: str | None, scalars: tuple[int, int]) -> None:
        X = data.draw(dense_operands(A, left=left, values=values), label="X")
        alpha, beta = (1, 0) if A.dtype_name == "bool" or out is None else scalars
        if A.dtype_name.startswith("u"):
            alpha = abs(alpha)
        unrounded = record.wide and bool(data.draw(st.booleans(), label="left unrounded"))
        with dispatch.tracing() as trace:
            try:
                options: Any = {"left": left, "out": out, "kernel": record.name}
                options |= {"assume_finite": finite, "precision": precision}
                if unrounded and _is_half(A) and A.format != "sum":
                    options["matmul"] = rounded_here
                check_product(A, X, alpha=alpha, beta=beta, bound=bound, **options)
            except NoKernelError as refusal:
                _count_refusal(certificate, record, refusal)
                return
        _check_ran(trace, record)
        certificate.runs[A.format, A.dtype_name] += 1

    outs, scalars = st.sampled_from(_OUT), st.sampled_from(_SCALARS)
    _run(given(drawn, st.data(), st.booleans(), outs, scalars)(law), examples)


def _is_half(A: Any) -> bool:
    return bool(accumulator(A.dtype_name) != A.dtype_name)


def needed_precision(record: KernelRecord) -> str | None:
    """The precision that a kernel has to be asked for, if it serves no call without."""
    for check in record.checks:
        if isinstance(check, dispatch.checks.Check) and check.fact == "precision":
            return None if None in check.allowed else str(check.allowed[0])
    return None


def _bound(record: KernelRecord, flush: bool) -> dict[str, Any]:
    """Options of `error_bound` from what a record says of its error."""
    return {
        "accumulator": record.tolerance.accumulator,
        "factor": max(record.tolerance.factor, 1.0),
        "extra": 2 * _ROUNDOFF[record.tolerance.multiplies_in],
        "nan_for_infinity": record.tolerance.nan_for_infinity,
        "flush": flush,
    }


def _certify_sparse(
    record: KernelRecord,
    drawn: Any,
    certificate: Certificate,
    values: Any,
    flush: bool,
    examples: int | None,
) -> None:
    from sparseformats.testing._certify_sparse import sampled_law, sparse_product_law

    def judge(A: Any, check: Callable[[], None]) -> None:
        with dispatch.tracing() as trace:
            try:
                check()
            except NoKernelError as refusal:
                _count_refusal(certificate, record, refusal)
                return
        _check_ran(trace, record)
        certificate.runs[A.format, A.dtype_name] += 1

    if record.op.startswith("plan_conversion:"):
        from sparseformats.testing._certify_plans import law_of

        _run(law_of(drawn, record, values, _bound(record, flush), judge), examples)
        return
    law = sampled_law if record.op == "sddmm" else sparse_product_law
    options = {"bound": _bound(record, flush), "kernel": record.name}
    _run(law(drawn, values, options, judge), examples)


def _check_ran(trace: dispatch.Trace, record: KernelRecord) -> None:
    ran = [run.kernel for run in trace if run.op == record.op]
    if set(ran) != {record.name}:
        raise AssertionError(f"{record.name} is under test, but what ran is {ran}")


def _count_refusal(certificate: Certificate, record: KernelRecord, refusal: NoKernelError) -> None:
    """Count the reasons of the kernel under test; a refusal must have one."""
    rows = getattr(refusal.explanation, "rows", ())
    mine = [reason for row in rows if row.kernel == record.name for reason in row.reasons]
    if not mine:
        raise AssertionError(f"{record.name} refuses without a reason: {refusal}")
    certificate.refusals.update(reason.code for reason in mine)


def _certify_conversion(
    record: KernelRecord, drawn: Any, certificate: Certificate, examples: int | None
) -> None:
    source, _, target = record.op.removeprefix("convert:").partition("->")

    def law(A: Any, pair: tuple[int, int], pattern: str) -> None:
        format = {"n:m": pattern, "dense": A.format}.get(target, target)
        if source == target == "bsr":  # sizes of which one is a multiple of the other
            r, c = A.blocksize
            pair = (r * pair[0], c * pair[0]) if pair[1] % 2 else (1, 1)
        options: dict[str, dict[str, Any]] = {
            "bsr": {"blocksize": pair},
            "blocked_ell": {"blocksize": pair[0]},
        }
        if not laws.holds(A, format):
            return
        with dispatch.tracing() as trace, dispatch.use_kernel(record.name, record.op):
            try:
                _convert(A, source, target, format, options.get(target, {}))
            except NoKernelError as refusal:
                _count_refusal(certificate, record, refusal)
                return
        if record.op in {run.op for run in trace}:  # a path may not meet the edge at all
            _check_ran(trace, record)
            certificate.runs[A.format, A.dtype_name] += 1

    _run(given(drawn, blocksizes(), st.sampled_from(["2:4", "1:2", "3:5"]))(law), examples)


def _convert(A: Any, source: str, target: str, format: str, options: dict[str, Any]) -> None:
    """Convert and hold the result to the laws."""
    if target == "dense":
        with unchanged(A):
            D = A.lib.to_numpy(A.to_dense())
        if D.tobytes() != reference.dense(A).tobytes():
            raise AssertionError(f"dense: expected\n{reference.dense(A)}\ngot\n{D}")
        return
    if source == "dense":
        from sparseformats import from_dense

        A = A.to("coo")
        A = type(A)(*(x[A.lib.nonzero_mask(A.data)] for x in (A.data, A.row, A.col)), A.shape)
        D = A.to_dense()
        with unchanged(D):
            B = from_dense(D, format, **options)
    else:
        with unchanged(A):
            B = A.to(format, **options)
        laws.check_index_width(A, B)
    laws.check_valid(B)
    laws.check_content_preserved(A, B)


def certify_format(
    format: str,
    *,
    library: str = "numpy",
    device: str = "cpu",
    targets: Sequence[str] = ("coo", "csr", "csc"),
    examples: int | None = None,
) -> Certificate:
    """Hold a format to the laws of a single matrix and to round trips through others.

    The format must be known to `matrices` and to `sparseformats.reference`.

    Parameters
    ----------
    format : str
        Family, or one n:m pattern.
    library, device : str
        Where the arrays live.
    targets : sequence of str
        Formats to go through, each without options.
    examples : int, optional
        Number of examples; by default that of the active Hypothesis profile.

    Returns
    -------
    Certificate

    Examples
    --------
    >>> from sparseformats.testing import certify_format
    >>> sum(certify_format("bsr", examples=5).runs.values()) >= 5
    True
    """
    certificate = Certificate(format)

    def law(A: Any, chain: list[str]) -> None:
        laws.check_valid(A)
        laws.check_immutable(A)
        laws.check_copy(A)
        if library != "array_api_strict":  # whose arrays cannot be pickled
            laws.check_pickle(A)
        laws.check_transpose(A)
        laws.check_dense_round_trip(A)
        laws.check_round_trip(A, chain)
        certificate.runs[A.format, A.dtype_name] += 1

    drawn = matrices(format, library=library, device=device)
    _run(given(drawn, st.lists(st.sampled_from(targets), max_size=4))(law), examples)
    return certificate
