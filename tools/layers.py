"""Direction of imports: which part of the code base may import which other part.

The rules are the table below; the check parses every file and never imports one, so it also sees
imports inside functions and under ``TYPE_CHECKING``. Run as ``python -m tools.layers``.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "sparseformats"
KERNELS = "sparseformats_kernels"
ROOTS = {PACKAGE: PACKAGE, KERNELS: f"kernels/{KERNELS}"}

_BELOW_FORMATS = {"_arrays", "_dtypes", "errors"}
_BELOW_CONVERT = {"dispatch", "formats"} | _BELOW_FORMATS
_BELOW_OPS = {"convert", "reference"} | _BELOW_CONVERT
_BELOW_FACE = {"algebra", "ops"} | _BELOW_OPS

# Part -> the parts it may import. A part is a module or package directly below `sparseformats`.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "_dtypes": {"errors"},
    "_arrays": {"_dtypes", "errors"},
    "formats": _BELOW_FORMATS,
    "reference": {"formats"} | _BELOW_FORMATS,
    "dispatch": {"errors"},
    "convert": _BELOW_CONVERT,
    "algebra": {"convert"} | _BELOW_CONVERT,
    "ops": _BELOW_OPS,
    "io": _BELOW_FACE,
    "nn": _BELOW_FACE,
    "advise": _BELOW_FACE,
    # These two use the library as its users do, through its public names.
    "testing": _BELOW_FACE | {"__init__", "io"},
    "cli": _BELOW_FACE | {"__init__", "advise", "io", "nn", "testing"},
    "__main__": {"cli"},
    # The face names everything; what is more than NumPy it imports at first use.
    "__init__": _BELOW_FACE | {"advise", "io", "nn", "testing"},
}
# A kernel sees facts and buffers; of dispatch it sees only what a record is made of, and where the
# user's own files lie.
KERNELS_ALLOWED = (
    *("dispatch.record", "dispatch.query", "dispatch.places", "formats", "_arrays", "_dtypes"),
    "errors",
)
# `A.to(...)`, `A + B`, `A @ X` are methods of the base: the one place that reaches upward, lazily.
UPWARD = {f"{PACKAGE}.formats.base": {"algebra", "convert", "ops"}}
# dispatch compares facts; it knows no array library.
ARRAY_LIBRARIES = {"array_api_compat", "cupy", "cupyx", "ml_dtypes", "numpy", "scipy", "torch"}
# Below convert.interop only `_arrays` tells array libraries apart.
GPU_LIBRARIES = {"cupy", "cupyx", "torch"}
MAY_NAME_LIBRARIES = (
    f"{PACKAGE}._arrays",
    f"{PACKAGE}.convert.interop",
    f"{PACKAGE}.nn",
    f"{PACKAGE}.testing",
    KERNELS,
)
NEVER_IMPORTED = {"benchmarks", "demo", "tests", "tools"}


@dataclass(frozen=True, slots=True)
class Import:
    """One import: in which module and line, of what, and whether inside a function."""

    module: str
    line: int
    target: str
    in_function: bool
    typing_only: bool


def modules(root: Path) -> dict[str, Path]:
    """Dotted name -> file, for every Python file of the two import roots."""
    found: dict[str, Path] = {}
    for name, folder in ROOTS.items():
        base = root / folder
        for path in sorted(base.rglob("*.py")):
            parts = path.relative_to(base).with_suffix("").parts
            dotted = ".".join((name, *parts))
            found[dotted.removesuffix(".__init__") if parts[-1] == "__init__" else dotted] = path
    return found


def _base(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    """Absolute name of what a `from … import` starts at."""
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    parts = parts[: len(parts) - node.level + (1 if is_package else 0)]
    return ".".join(parts + ([node.module] if node.module else []))


def imports(module: str, path: Path, known: set[str]) -> Iterator[Import]:
    """Every import of one file; `from a import b` is `a.b` where that is a module, else `a`."""

    def walk(node: ast.AST, in_function: bool, typing_only: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, node.lineno, alias.name, in_function, typing_only)
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, module, path.name == "__init__.py")
            for alias in node.names:
                full = f"{base}.{alias.name}"
                target = full if full in known else base
                yield Import(module, node.lineno, target, in_function, typing_only)
        in_function |= isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            typing_only = True
        for child in ast.iter_child_nodes(node):
            yield from walk(child, in_function, typing_only)

    yield from walk(ast.parse(path.read_text(encoding="utf-8")), False, False)


def _part(dotted: str) -> str:
    parts = dotted.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def _within(dotted: str, prefixes: tuple[str, ...]) -> bool:
    return any(dotted == p or dotted.startswith((p + ".", p + "_")) for p in prefixes)


def _refusal(one: Import) -> str | None:
    """Why this import is against the rules, or None."""
    top = one.target.split(".")[0]
    ours = one.module.split(".")[0] == PACKAGE
    if top in NEVER_IMPORTED:
        return f"library code never imports {top}"
    if top == KERNELS:
        return "kernels are loaded by their string target, never imported" if ours else None
    if top == PACKAGE:
        return _refusal_inside(one) if ours else _refusal_kernel(one)
    if ours and _part(one.module) == "dispatch" and top in ARRAY_LIBRARIES:
        return "dispatch knows no array library"
    if top in GPU_LIBRARIES and not one.typing_only and not _within(one.module, MAY_NAME_LIBRARIES):
        return "only _arrays, convert.interop and the kernels tell array libraries apart"
    return None


def _refusal_inside(one: Import) -> str | None:
    source, target = _part(one.module), _part(one.target)
    if source == target:
        return None
    if source not in ALLOWED:
        return f"{source} has no row in the table of layers"
    upward = UPWARD.get(one.module, set()) if one.in_function else set()
    if target in ALLOWED[source] | upward:
        return None
    return f"{source} may import only {', '.join(sorted(ALLOWED[source])) or 'nothing of ours'}"


def _refusal_kernel(one: Import) -> str | None:
    below = one.target.removeprefix(PACKAGE + ".")
    if any(below == p or below.startswith(p + ".") for p in KERNELS_ALLOWED):
        return None
    return f"a kernel may import only {', '.join(KERNELS_ALLOWED)}"


def violations(root: Path) -> list[str]:
    """All imports that the table forbids, as `file:line: module imports target: why`."""
    table = modules(root)
    found = []
    if (root / "kernels" / "__init__.py").exists():
        found.append("kernels/__init__.py: kernels/ is a source root, not a package")
    for module, path in table.items():
        for one in imports(module, path, set(table)):
            why = _refusal(one)
            if why:
                place = f"{path.relative_to(root)}:{one.line}"
                found.append(f"{place}: {module} imports {one.target}: {why}")
    return found


def main() -> int:
    """Print every violation; the exit status says whether there were any."""
    found = violations(Path(__file__).resolve().parents[1])
    print("\n".join(found) or "layers: every import points downward")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
