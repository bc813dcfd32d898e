"""BSR and Blocked-ELL times dense on Hopper, where small blocks share what they read of X."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, final

from sparseformats._arrays import Array
from sparseformats.dispatch.query import Query
from sparseformats.formats import SparseMatrix
from sparseformats_kernels.triton import block_state, configs, spmm_blocks
from sparseformats_kernels.triton.calls import Bindable, activation_of, capability_of, has_bias
from sparseformats_kernels.triton.launch import Launch, Specimen, compiled
from sparseformats_kernels.triton.schedule import schedule
from sparseformats_kernels.triton.sending import KEPT_LISTS
from sparseformats_kernels.triton.shared_variants import fitted, sharing_of, specimen_of_shared
from sparseformats_kernels.triton.sizes import processors_of
from sparseformats_kernels.triton.unions import Sharing, Unions, room, unions

__all__ = ["TritonShared"]

_TYPES = {"float16": "fp16", "bfloat16": "bf16"}
_READ = ("k", "present", "starts", "places")  # of `Unions`, by the kernel


class Lists(NamedTuple):
    """What the kernel reads beside values, on the device."""

    program_ptr: Array
    items: Array
    columns: Array
    present: Array
    starts: Array
    places: Array
    programs: int


class State(block_state.State):
    """A matrix's blocks, and the unions and lists of tiles made of them so far."""

    __slots__ = ("dealt", "host", "merged", "rooms")

    def __init__(self, A: SparseMatrix, query: Query) -> None:
        super().__init__(A, query)
        self.rooms: dict[Sharing, int] = {}
        self.merged: dict[tuple[Sharing, int], Unions] = {}
        self.dealt: dict[tuple[Sharing, int, int], Lists] = {}
        self.host: tuple[Any, Any] | None = None

    def variant(self, config: configs.Config) -> tuple[configs.Config, int]:
        """Launch parameters that fit, and the places for blocks in a stage."""
        sharing = sharing_of(config, self.block)
        with self.lock:
            slots = self.rooms.get(sharing)
            if slots is None:
                columns, _ = self._on_host()
                slots = room(columns, self.blocks.begin, self.blocks.end, sharing)
                self.rooms[sharing] = slots
        return fitted(config, self.block, slots)

    def shares(self, config: configs.Config, slots: int, columns: int) -> Lists:
        """The unions, and programs' shares of `columns` columns of tiles."""
        sharing = sharing_of(config, self.block)
        key = (sharing, slots, columns)
        with self.lock:
            found = self.dealt.get(key)
            if found is None:
                if len(self.dealt) >= KEPT_LISTS:
                    self.dealt.pop(next(iter(self.dealt)))  # whoever uses it keeps it
                found = self.dealt[key] = self._share(sharing, slots, columns)
        return found

    def _share(self, sharing: Sharing, slots: int, wide: int) -> Lists:
        lib, place = self.device.lib, self.device.place
        made = self.merged.get((sharing, slots))
        if made is None:
            columns, places = self._on_host()
            made = unions(
                *(columns, places, self.blocks.begin, self.blocks.end),
                *(sharing, slots, self.block[1]),
            )
            made = made._replace(**{x: lib.from_numpy(getattr(made, x), place) for x in _READ})
            self.merged[sharing, slots] = made
        programs = min(processors_of(self.device), made.begin.size * wide)
        ptr, items = schedule(made.begin, made.end, wide, max(1, programs))
        dealt = lib.from_numpy(ptr, place), lib.from_numpy(items, place)
        self.device.settle()
        return Lists(*dealt, made.k, made.present, made.starts, made.places, programs)

    def _on_host(self) -> tuple[Any, Any]:
        if self.host is None:
            lib, (columns, places, _, _) = self.device.lib, self.blocks
            self.host = (
                lib.to_numpy(columns),
                None if places is None else lib.to_numpy(places),
            )
        return self.host


@final
class TritonShared(Bindable):
    """The kernel for half types and blocks of 16 or 32 rows, and of 16, 32 or 64 columns."""

    @staticmethod
    def layout(query: Query) -> int:
        """One state serves all sizes."""
        return 0

    @staticmethod
    def pack(A: SparseMatrix, query: Query) -> State:
        """Name the blocks; their values stay where they are."""
        return State(A, query)

    @staticmethod
    def bind(state: State, query: Query) -> Callable[..., Array]:
        """Compile for calls of these facts, and lay out their parameters."""
        return Call(state, query)


class Call(spmm_blocks.Call):
    """The kernel ready for operands of one set of facts, or for the pieces of a batch."""

    state: State

    def launch(self, n: int) -> tuple[Launch, None]:
        """The kernel for n columns, compiled, with its parameters but those of a call.

        No row is cut, so that there are no parts to add.
        """
        state, device = self.state, self.state.device
        with self.lock, device.here():
            config = configs.choose("triton-shared", self.query, processors_of(device))
            config, slots = state.variant(config)
            lists = state.shares(config, slots, -(-n // config.BN))
            made = specimen(self, config, slots)
            code = compiled(made, capability_of(self.query), device.index)
            launch = Launch(code, lists.programs, device.index, lists[:-1])
            names = ("program_ptr", "items", "columns", "present", "starts", "places")
            pointers = dict(zip(names, map(device.lib.address, lists[:-1]), strict=True))
            launch.set(M=state.shape[0], N=n, alpha=1.0, beta=0.0, bias=0, out=0, **pointers)
            rows, columns = (int(s) for s in state.values.shape)
            point = launch.mapped("values", state.dtype, (rows, columns), columns)
            point(device.lib.address(state.values))
        return launch, None


def specimen(call: Call, config: configs.Config, slots: int) -> Specimen:
    """The kernel of a call, compiled for exactly its facts."""
    state, query = call.state, call.query
    return specimen_of_shared(
        *(config, slots, state.block, _TYPES[state.dtype]),
        transposed=query.transposed,
        x_rows=call.x_rows,
        y_rows=call.y_rows,
        alpha=not query.alpha_one,
        beta=not query.beta_zero,
        bias=has_bias(query),
        activation=activation_of(query),
    )
