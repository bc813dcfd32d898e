"""Raw constructor input of sums: parts of any formats that store no position twice."""

from __future__ import annotations

from collections.abc import Callable, Set as AbstractSet
from dataclasses import replace
from types import MappingProxyType

import numpy as np
from hypothesis import strategies as st

from sparseformats.formats import COO, Sum
from sparseformats.reference import Content
from sparseformats.reference.decoding import host_dtype
from sparseformats.testing._raw_plain import draw_coo, draw_csc, draw_csr
from sparseformats.testing._raw_slots import draw_blocked_ell, draw_bsr, draw_nm
from sparseformats.testing._values import Draw
from sparseformats.testing.raw import Choices, Place, RawInput

__all__ = ["draw_sum"]

_MOST = 3  # parts
_PARTS: tuple[Callable[[Draw, Choices], RawInput], ...] = (
    *(draw_nm, draw_bsr, draw_csr, draw_coo, draw_csc, draw_blocked_ell),
)


def draw_sum(draw: Draw, choices: Choices) -> RawInput:
    """Draw input of Sum.

    A part that meets an earlier one keeps what the earlier ones do not store, as coordinates.
    """
    shape, dtype = draw(choices.shapes), str(draw(choices.dtypes))
    alike = replace(choices, shapes=st.just(shape), dtypes=st.just(dtype))
    parts: list[RawInput] = []
    elements: dict[Place, bytes] = {}
    for _ in range(draw(st.integers(1, _MOST))):
        part = draw(st.sampled_from(_PARTS))(draw, alike)
        if elements.keys() & part.meaning.elements.keys():
            part = _without(part, elements.keys(), str(draw(choices.index_dtypes)))
        parts.append(part)
        elements |= part.meaning.elements
    return RawInput(
        "sum",
        Sum,
        {},
        {"parts": parts},
        meaning=Content(shape, dtype, MappingProxyType(elements)),
        summed=frozenset[Place]().union(*(part.summed for part in parts)),
        canonical=all(part.canonical for part in parts),
    )


def _without(part: RawInput, taken: AbstractSet[Place], index: str) -> RawInput:
    """What a part stores elsewhere than at these places, as sorted coordinates."""
    shape, dtype, found = part.meaning
    left = {at: found[at] for at in sorted(found) if at not in taken}
    arrays = {
        "data": np.frombuffer(b"".join(left.values()), host_dtype(dtype)),
        "row": np.array([i for i, _ in left], index),
        "col": np.array([j for _, j in left], index),
    }
    meaning = Content(shape, dtype, MappingProxyType(left))
    summed = part.summed & left.keys()
    return RawInput("coo", COO, arrays, {"shape": shape}, meaning=meaning, summed=summed)
