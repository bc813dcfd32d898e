"""The instructions of the 2:4 kernels, written out: Triton has none for sparse tensor cores.

Operands ``$0`` on are registers of one thread: outputs first, then inputs.
"""

from __future__ import annotations

__all__ = ["EXCHANGE", "EXCHANGE_CONSTRAINTS", "PRODUCT_CONSTRAINTS", "product"]

PRODUCT_CONSTRAINTS = ",".join(["=&f"] * 4 + ["r"] * 8 + ["f"] * 4 + ["r"] * 4)
"""Four sums; four words of A, four of B, four sums before, four times the word of positions."""

EXCHANGE_CONSTRAINTS = ",".join(["=&r"] * 4 + ["r"] * 4)

EXCHANGE = """{ .reg .pred odd; .reg .b32 l, s<2>, q<2>;
mov.u32 l, %laneid; and.b32 l, l, 1; setp.ne.u32 odd, l, 0;
selp.b32 s0, $4, $5, odd; selp.b32 s1, $6, $7, odd;
shfl.sync.bfly.b32 q0, s0, 1, 0x1f, 0xffffffff; shfl.sync.bfly.b32 q1, s1, 1, 0x1f, 0xffffffff;
selp.b32 $0, q0, $4, odd; selp.b32 $1, q1, $6, odd;
selp.b32 $2, $5, q0, odd; selp.b32 $3, $7, q1, odd; }"""
"""Neighbouring lanes hold two groups of four each; each gets its halves of all four."""


def product(kind: str, selector: int, sparse: bool) -> str:
    """16 rows x 32 columns of the matrix times 8 columns.

    Parameters
    ----------
    kind : str
        ``"f16"`` or ``"bf16"``.
    selector : int
        Of two such products that share a word of positions, the first or the second.
    sparse : bool
        By ``mma.sp``, else by expanding and ``mma``.
    """
    return _sparse(kind, selector) if sparse else _expanded(kind, selector)


def _sparse(kind: str, selector: int) -> str:
    return (
        f"mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.{kind}.{kind}.f32 "
        f"{{$0,$1,$2,$3}}, {{$4,$5,$6,$7}}, {{$8,$9,$10,$11}}, {{$12,$13,$14,$15}}, $16, "
        f"{selector};"
    )


def _expanded(kind: str, selector: int) -> str:
    """Expand four words of values to eight by byte permutations, then multiply twice.

    A group's code, 3 bits of a nibble, says which of the six pairs of positions it holds. For each
    position, one permutation looks up for four groups which of the two values goes there, or zero:
    half a selector of the permutation that makes two positions of a group.
    """
    step = f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32"
    lines = ["{ .reg .b32 m, z, lo, hi, p<4>, s<8>, e<8>; .reg .f32 h<4>;", "mov.b32 z, 0;"]
    lines.append(f"shr.u32 m, $16, {16 * selector};")
    for position in range(4):
        low, high = _table(position)
        lines.append(f"mov.b32 lo, {low}; mov.b32 hi, {high}; prmt.b32 p{position}, lo, hi, m;")
    for group in range(4):
        take = group | (4 + group) << 4
        for half in range(2):
            number = 2 * group + half
            lines.append(f"prmt.b32 s{number}, p{2 * half}, p{2 * half + 1}, {take};")
            lines.append(f"prmt.b32 e{number}, ${4 + group}, z, s{number};")
    lines.append(f"{step} {{h0,h1,h2,h3}}, {{e0,e2,e1,e3}}, {{$8,$9}}, {{$12,$13,$14,$15}};")
    lines.append(f"{step} {{$0,$1,$2,$3}}, {{e4,e6,e5,e7}}, {{$10,$11}}, {{h0,h1,h2,h3}}; }}")
    return "\n".join(lines)


def _table(position: int) -> tuple[int, int]:
    """Two words of bytes by code: selectors of the first value, the second, or zero."""
    pairs = ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3), (0, 1), (0, 1))
    found = [0x10 if a == position else 0x32 if b == position else 0x44 for a, b in pairs]
    low, high = (sum(byte << 8 * i for i, byte in enumerate(found[j : j + 4])) for j in (0, 4))
    return low, high
