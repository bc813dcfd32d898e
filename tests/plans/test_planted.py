"""Planted bugs: each way to use a stale or foreign plan makes the ordinary tests fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import sparseformats as sf
from sparseformats._arrays import NumPyLibrary, TorchLibrary
from sparseformats.dispatch.plan_cache import PlanCache
from sparseformats.ops import layer, light, preparing, product
from sparseformats.ops.beside import NOTHING, Beside
from tests.ops import test_beside, test_layer_plans
from tests.plans import test_cache, test_values, test_warm

Plant = Callable[[pytest.MonkeyPatch], None]


def without(position: int) -> Plant:
    """Facts of NumPy arrays that lack one."""
    whole = NumPyLibrary.facts

    def facts(self: Any, x: Any) -> Any:
        found = whole(self, x)
        assert found is not None
        return (*found[:position], *found[position + 1 :])

    return lambda patch: patch.setattr(NumPyLibrary, "facts", facts)


def forgets_out(patch: pytest.MonkeyPatch) -> None:
    whole = product._find

    def find(a: Any, b: Any, out: Any, *rest: Any) -> Any:
        return whole(a, b, None, *rest)

    patch.setattr(product, "_find", find)


def forgets_scalars(patch: pytest.MonkeyPatch) -> None:
    whole = product._find

    def find(a: Any, b: Any, out: Any, one: bool, zero: bool, options: Any) -> Any:
        return whole(a, b, out, True, True, options)

    patch.setattr(product, "_find", find)


def forgets_options(patch: pytest.MonkeyPatch) -> None:
    whole = product._find

    def find(a: Any, b: Any, out: Any, one: bool, zero: bool, options: Any) -> Any:
        return whole(a, b, out, one, zero, ())

    patch.setattr(product, "_find", find)


def forgets_use_kernel(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(product.forcing, "state", lambda: ())


def forgets_the_generation(patch: pytest.MonkeyPatch) -> None:
    class Registry:
        generation = 0

    patch.setattr(product, "REGISTRY", Registry)


def forgets_versions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TorchLibrary, "watch", lambda self, arrays: None)


def never_keeps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PlanCache, "remember", lambda self, entry, key, plan: None)


def trusts_ids(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PlanCache, "find", lambda self, matrix: self._entries.get(id(matrix)))


def holds_the_matrix(patch: pytest.MonkeyPatch) -> None:
    whole = light.pack

    def pack(o: Any, query: Any, selection: Any) -> Any:
        packed = whole(o, query, selection)
        packed.kernel = (packed.kernel, o.matrix)
        return packed

    patch.setattr(preparing, "pack", pack)


def shares_workspaces(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(preparing, "is_apart", lambda selection: False)


def layers_forget(position: int) -> Plant:
    """Plans of layers that are found without regard to bias, activation or out."""
    whole = layer.find

    def find(*given: Any) -> Any:
        return whole(*given[:position], None, *given[position + 1 :])

    return lambda patch: patch.setattr(layer, "find", find)


def layers_forget_what_is_beside(patch: pytest.MonkeyPatch) -> None:
    whole = layer.find
    patch.setattr(layer, "find", lambda *given: whole(*given[:6], NOTHING))


def a_number_is_a_fact(patch: pytest.MonkeyPatch) -> None:
    """Scales are read when a plan is made."""
    whole = Beside.factor.fget
    assert whole is not None
    patch.setattr(Beside, "factor", property(lambda self: KEPT.setdefault("factor", whole(self))))


KEPT: dict[str, float] = {}


def options_of_layers() -> None:
    KEPT.clear()
    test_beside.test_every_option_has_a_plan_of_its_own("torch")


def layers() -> None:
    test_layer_plans.test_whatever_changes_has_a_plan_of_its_own("numpy", test_layer_plans.Fuses)
    test_layer_plans.test_a_fusing_kernel_writes_straight_into_out("numpy", (5,))


def other_facts() -> None:
    test_warm.test_every_call_gets_a_plan_of_its_own_facts("numpy")


PLANTED: list[tuple[Plant, Callable[[], object]]] = [
    (without(0), other_facts),
    (without(2), other_facts),
    (forgets_out, other_facts),
    (forgets_scalars, other_facts),
    (forgets_options, test_warm.test_options_have_plans_of_their_own),
    (forgets_use_kernel, test_warm.test_options_have_plans_of_their_own),
    (forgets_the_generation, test_warm.test_a_new_registration_is_seen),
    (
        forgets_versions,
        lambda: test_values.test_values_changed_in_place_are_packed_anew("bsr", "reference"),
    ),
    (layers_forget(2), layers),
    (layers_forget(3), layers),
    (layers_forget(4), layers),
    (layers_forget_what_is_beside, options_of_layers),
    (a_number_is_a_fact, options_of_layers),
    (never_keeps, test_warm.test_a_view_as_transpose_is_kept_with_its_base),
    (trusts_ids, test_cache.test_an_id_that_is_used_again_finds_nothing),
    (holds_the_matrix, test_cache.test_ten_thousand_matrices_leave_nothing_behind),
    (
        shares_workspaces,
        test_warm.test_states_of_kernels_with_a_workspace_stay_in_their_thread,
    ),
]


@pytest.mark.parametrize(("plant", "check"), PLANTED)
def test_a_planted_bug_is_noticed(
    plant: Plant, check: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, ValueError, TypeError, IndexError, RuntimeError)):
        check()


def test_the_unplanted_checks_pass() -> None:
    checks = {check for _, check in PLANTED}
    for check in checks:
        if check is not test_cache.test_ten_thousand_matrices_leave_nothing_behind:
            sf.clear_cache()
            check()
