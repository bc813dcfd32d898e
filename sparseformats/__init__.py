"""Sparse matrices in six formats and their sums, converted without loss, multiplied by one call.

Every public name is listed here and loaded when it is first used, so that importing the package
costs next to nothing and never loads an array library that the caller does not use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparseformats import io as io, reference as reference, testing as testing
    from sparseformats.algebra import (
        PatternReport as PatternReport,
        block_diag as block_diag,
        check_pattern as check_pattern,
        eye as eye,
        hstack as hstack,
        prune as prune,
        random as random,
        split as split,
        vstack as vstack,
    )
    from sparseformats.convert import (
        asformat as asformat,
        explain_conversion as explain_conversion,
        from_cupy as from_cupy,
        from_dense as from_dense,
        from_scipy as from_scipy,
        from_torch as from_torch,
    )
    from sparseformats.convert.same import same as same
    from sparseformats.dispatch import (
        kernels as kernels,
        tracing as tracing,
        use_kernel as use_kernel,
    )
    from sparseformats.errors import (
        CapacityError as CapacityError,
        DeviceMismatchError as DeviceMismatchError,
        InvalidTensorError as InvalidTensorError,
        KernelLoadWarning as KernelLoadWarning,
        LossyConversionError as LossyConversionError,
        NoKernelError as NoKernelError,
        PatternError as PatternError,
        Problem as Problem,
        SparseFormatsError as SparseFormatsError,
    )
    from sparseformats.formats import (
        BSR as BSR,
        COO as COO,
        CSC as CSC,
        CSR as CSR,
        NM as NM,
        BlockedELL as BlockedELL,
        SparseMatrix as SparseMatrix,
        Sum as Sum,
        Transposed as Transposed,
    )
    from sparseformats.ops import (
        ConversionPlan as ConversionPlan,
        Plan as Plan,
        SumPlan as SumPlan,
        cache_info as cache_info,
        clear_cache as clear_cache,
        explain as explain,
        linear as linear,
        matmul as matmul,
        plan as plan,
        plan_conversion as plan_conversion,
        sddmm as sddmm,
        validate as validate,
    )

__version__ = "0.1.0"

_HOMES = {
    "formats": (
        "BSR",
        "COO",
        "CSC",
        "CSR",
        "NM",
        "BlockedELL",
        "SparseMatrix",
        "Sum",
        "Transposed",
    ),
    "convert": (
        "asformat",
        "explain_conversion",
        "from_cupy",
        "from_dense",
        "from_scipy",
        "from_torch",
        "same",
    ),
    "algebra": (
        "PatternReport",
        "block_diag",
        "check_pattern",
        "eye",
        "hstack",
        "prune",
        "random",
        "split",
        "vstack",
    ),
    "ops": (
        "ConversionPlan",
        "Plan",
        "SumPlan",
        "cache_info",
        "clear_cache",
        "explain",
        "linear",
        "matmul",
        "plan",
        "plan_conversion",
        "sddmm",
        "validate",
    ),
    "dispatch": (
        "kernels",
        "tracing",
        "use_kernel",
    ),
    "errors": (
        "CapacityError",
        "DeviceMismatchError",
        "InvalidTensorError",
        "KernelLoadWarning",
        "LossyConversionError",
        "NoKernelError",
        "PatternError",
        "Problem",
        "SparseFormatsError",
    ),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}
_MODULES = ("io", "reference", "testing")

__all__ = [*_HOME, *_MODULES]  # noqa: PLE0604 - names, computed from the table above


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"sparseformats.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'sparseformats' has no attribute {name!r}")
    value = getattr(import_module(f"sparseformats.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
