"""Every kernel as it would be compiled for typical calls: for tests that only compile."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

from sparseformats.dispatch.query import Query
from sparseformats_kernels.triton import configs, nm_variants
from sparseformats_kernels.triton.launch import Specimen
from sparseformats_kernels.triton.shared_variants import fitted, specimen_of_shared
from sparseformats_kernels.triton.spmm_csr import ADDING, CUT, WHOLE, of_parts
from sparseformats_kernels.triton.spmm_few import KERNEL as FEW
from sparseformats_kernels.triton.spmm_tiles import KERNEL as TILES
from sparseformats_kernels.triton.strided_variants import (
    Kernel,
    Strides,
    like_of,
    specimen_of as strided_specimen,
)
from sparseformats_kernels.triton.variants import specimen_of

__all__ = ["specimens"]

_PROCESSORS = 132
_TYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}


def specimens(capability: int, *, every: bool = False) -> list[tuple[str, Specimen]]:
    """What is compiled for calls of one compute capability, with names for people.

    Parameters
    ----------
    capability : int
        Such as 90.
    every : bool
        All launch parameters that a tuner would try, layouts and epilogues, not one of a kind.
    """
    found = []
    for query, label in _queries(capability, every):
        if capability // 10 == 9 and query.a_dtype != "float32":
            found += _specialised(query, label, every)
            found += _shared(query, label) if (query.blocksize or (0, 0))[0] < 64 else []
        found += _strided("triton-tiles", TILES, query, label, every)
    for query, label in _narrow_queries(capability, every):
        found += _strided("triton-tiles", TILES, query, label, every)
    for query, label in _few_queries(capability, every):
        found += _strided("triton-few", FEW, query, label, every)
    for query, label in _grouped_queries(capability, every):
        found += _grouped(query, label, every)
    for query, label in _row_queries(capability, every):
        found += _rows(query, label, every)
    return found


def _queries(capability: int, every: bool) -> list[tuple[Query, str]]:
    made = []
    blocks = [(16, 16), (32, 32), (64, 64), (128, 128)]
    blocks += [(16, 64), (64, 16), (256, 256)] if every else []
    for block in blocks:
        for dtype in ("bfloat16", "float16", "float32") if every else ("bfloat16", "float32"):
            for layout in ("C", "F") if every or block == (64, 64) else ("C",):
                for n in (16, 128, 4096) if every else (4096,):
                    facts: dict[str, Any] = {"m": 4096, "k": 4096, "n": n, "blocksize": block}
                    facts |= {"a_dtype": dtype, "x_layout": layout, "out_layout": layout}
                    facts["capability"] = divmod(capability, 10)
                    label = f"{block[0]}x{block[1]}-{dtype}-{layout}-n{n}"
                    made.append((Query("matmul", "bsr", **facts), label))
    return made


def _narrow_queries(capability: int, every: bool) -> list[tuple[Query, str]]:
    """Values of 8 bits, alone and with all that may follow; names begin after ``triton-tiles``."""
    dtypes = ("int8", "float8_e4m3fn") if capability >= 89 else ("int8",)
    blocks = [(16, 16), (128, 128)] + ([(32, 32), (64, 64), (16, 64), (3, 5)] if every else [])
    made = []
    for dtype, block, layout in product(dtypes, blocks, ("C", "F")):
        name, k = "int8" if dtype == "int8" else "fp8", 16384 if block[0] == 128 else 4096
        facts: dict[str, Any] = {"m": 4096, "k": k, "n": 4096, "blocksize": block}
        facts |= {"a_dtype": dtype, "x_dtype": dtype, "x_layout": layout, "out_layout": layout}
        facts |= {
            "capability": divmod(capability, 10),
            "nnzb": 4096 * k // 10 // (block[0] * block[1]),
        }
        label = f"{name}-{block[0]}x{block[1]}-{layout}-n4096"
        made.append((Query("matmul", "bsr", out_dtype=_SUMS[dtype], **facts), label))
        if every or block == (128, 128):
            facts |= {"out_dtype": "bfloat16", "epilogue": "scale+bias+gelu+residual"}
            made.append((Query("matmul", "bsr", **facts), f"{label}-scaled"))
    return made


_SUMS = {"int8": "int32", "float8_e4m3fn": "float8_e4m3fn"}


def _configs(kernel: str, query: Query, every: bool) -> list[configs.Config]:
    if every:
        return configs.candidates(kernel, query, _PROCESSORS)
    return [configs.choose(kernel, query, _PROCESSORS)]


def _specialised(query: Query, label: str, every: bool) -> list[tuple[str, Specimen]]:
    r, c = query.blocksize or (1, 1)
    found = []
    for number, config in enumerate(_configs("triton-blocks", query, every)):
        facts: dict[str, Any] = {"x_rows": query.x_layout == "C", "y_rows": query.x_layout == "C"}
        variants = [facts]
        if number == 0:
            variants.append(facts | {"transposed": True, "indirect": True})
            variants.append(facts | {"alpha": True, "bias": True, "activation": "gelu"})
            variants.append(facts | {"alpha": True, "beta": True})
        for variant in variants if every or c == 64 else variants[:1]:
            extra = "".join(f"-{name}" for name in variant if name not in facts)
            made = specimen_of(config, (r, c), _TYPES[query.a_dtype or ""], **variant)
            found.append((f"triton-blocks-{label}{extra}-{number}", made))
    return found


def _shared(query: Query, label: str) -> list[tuple[str, Specimen]]:
    block = query.blocksize or (1, 1)
    config = configs.choose("triton-shared", query, _PROCESSORS)
    rows = query.x_layout == "C"
    made = specimen_of_shared(
        *fitted(config, block, 8), block, _TYPES[query.a_dtype or ""], x_rows=rows, y_rows=rows
    )
    return [(f"triton-shared-{label}-0", made)]


def _few_queries(capability: int, every: bool) -> list[tuple[Query, str]]:
    widths = (1, 16, 32, 64) if every else (16,)
    found = _queries(capability, every)
    labels = [(q, label.rsplit("-", 1)[0]) for q, label in found if q.n == 4096]
    return [(replace(q, n=n), f"{label}-n{n}") for q, label in labels for n in widths]


def _strided(
    name: str, kernel: Kernel, query: Query, label: str, every: bool
) -> list[tuple[str, Specimen]]:
    n, k = query.n, query.k
    x = Strides(n, 1, True) if query.x_layout == "C" else Strides(1, k, True)
    found = []
    precisions = (None, "tf32") if query.a_dtype == "float32" else (None,)
    for precision in precisions:
        asked = replace(query, precision=precision)
        for number, config in enumerate(_configs(name, asked, every)):
            made = strided_specimen(kernel, asked, config, x, x, x)
            found.append((f"{name}-{label}-{precision or 'ieee'}-{number}", made))
        if number == 0 and query.blocksize == (64, 64):
            config = _configs(name, asked, False)[0]
            whole = replace(asked, epilogue="bias+gelu+residual", batch=8)
            apart = x._replace(piece=n * k)
            made = strided_specimen(kernel, whole, config, apart, apart, apart, pieces=True)
            found.append((f"{name}-{label}-{precision or 'ieee'}-batch-residual", made))
    return found


def _grouped_queries(capability: int, every: bool) -> list[tuple[Query, str]]:
    made = []
    for dtype in ("bfloat16", "float16") if every else ("bfloat16",):
        for n in (1, 8, 16, 32, 64, 100) if every else (1, 16, 64):
            for layout in ("C", "F", "strided") if every else ("C", "F"):
                facts: dict[str, Any] = {"m": 4096, "k": 4096, "n": n, "pattern": (2, 4)}
                facts |= {"a_dtype": dtype, "x_layout": layout, "out_layout": layout}
                facts["capability"] = divmod(capability, 10)
                made.append((Query("matmul", "n:m", **facts), f"{dtype}-{layout}-n{n}"))
    return made


def _grouped(query: Query, label: str, every: bool) -> list[tuple[str, Specimen]]:
    x, y = (like_of(query.x_layout, rows, query.n, True) for rows in (query.k, query.m))
    facts, found = nm_variants.facts_of(x, y, query.k, query.n), []
    for number, config in enumerate(_configs("triton-nm", query, every)):
        variants = [query]
        if number == 0 and query.n == 16:
            variants.append(replace(query, alpha_one=False, beta_zero=False, epilogue="bias+gelu"))
        for asked in variants:
            extra = "-epilogue" if asked.epilogue else ""
            made = nm_variants.specimen_of(asked, config, facts)
            found.append((f"triton-nm-{label}{extra}-{number}", made))
    return found


_SUMMED = ("float32", "bfloat16", "float64", "int8")


def _row_queries(capability: int, every: bool) -> list[tuple[Query, str]]:
    """Elements by rows, with indices of both widths."""
    made = []
    for dtype, n, narrow in product(_SUMMED, (1, 16, 1024), (True, False)):
        for layout in ("C", "F") if n == 16 else ("C",):
            facts: dict[str, Any] = {"m": 16384, "k": 16384, "n": n, "nnz": 1 << 21}
            facts |= {"a_dtype": dtype, "x_layout": layout, "out_layout": layout}
            facts |= {"out_dtype": _SUMS.get(dtype, dtype), "fits_int32": narrow}
            facts["capability"] = divmod(capability, 10)
            label = f"{dtype}-{layout}-n{n}-{'int32' if narrow else 'int64'}"
            made.append((Query("matmul", "csr", **facts), label))
    return made


def _rows(query: Query, label: str, every: bool) -> list[tuple[str, Specimen]]:
    x, y = (like_of(query.x_layout, rows, query.n, True) for rows in (query.k, query.m))
    found = []
    for number, config in enumerate(_configs("triton-csr", query, every and query.fits_int32)):
        made = strided_specimen(CUT if number else WHOLE, query, config, x, y)
        found.append((f"triton-csr-{label}-{number}", made))
    config = _configs("triton-csr", query, False)[0]
    whole = query
    if query.a_dtype != "int8":
        facts: dict[str, Any] = {"alpha_one": False, "beta_zero": False}
        whole = replace(query, epilogue="bias+gelu+residual", **facts)
    adding = configs.Config(1, configs.width_of(query.n), 8, stages=1, warps=1)
    lies = like_of("C", query.m, query.n, True)
    found.append((f"triton-csr-{label}-cut", strided_specimen(CUT, whole, config, x, y, y)))
    made = strided_specimen(ADDING, of_parts(whole), adding, lies, y, y)
    return [*found, (f"triton-csr-{label}-adding", made)]
