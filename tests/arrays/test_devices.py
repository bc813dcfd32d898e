"""Libraries that compute on the current device only: who works on arrays switches to theirs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sparseformats as sf
from sparseformats import _arrays
from sparseformats._arrays import placing
from sparseformats._arrays.cupy_ import CuPyLibrary


class FakeArray(np.ndarray[Any, Any]):
    """An array that says where it is."""

    where = 0

    @property
    def device(self) -> Any:
        return SimpleNamespace(id=self.where)


class FakeCuPy:
    """Devices and streams as CuPy has them: current ones, the streams by thread and device."""

    ndarray = FakeArray

    def __init__(self) -> None:
        self.switches: list[int] = []
        self.capturing: set[int] = set()
        self._local = threading.local()
        fake = self

        class Device:
            def __init__(self, index: int | None = None) -> None:
                self.id = fake.current() if index is None else index

            def __enter__(self) -> None:
                self.before = fake.current()
                fake._local.device = self.id
                fake.switches.append(self.id)

            def __exit__(self, *_: Any) -> None:
                fake._local.device = self.before

        self.cuda = SimpleNamespace(
            Device=Device,
            runtime=SimpleNamespace(getDevice=self.current),
            get_current_stream=self.stream,
        )

    def current(self) -> int:
        return getattr(self._local, "device", 0)

    def stream(self, device: int = -1) -> Any:
        index = self.current() if device < 0 else device
        ptr = getattr(self._local, "streams", {}).get(index, 2)  # 2: that of the thread
        return SimpleNamespace(ptr=ptr, is_capturing=lambda: ptr in self.capturing)

    def use(self, device: int, ptr: int) -> None:
        self._local.streams = {**getattr(self._local, "streams", {}), device: ptr}

    def asarray(self, x: Any) -> Any:
        return x

    def array(self, x: Any, **_: Any) -> Any:
        made = np.array(x).view(FakeArray)
        made.where = self.current()
        return made


@pytest.fixture
def cupy() -> FakeCuPy:
    return FakeCuPy()


@pytest.fixture
def lib(cupy: FakeCuPy, monkeypatch: pytest.MonkeyPatch) -> Iterator[CuPyLibrary]:
    made = CuPyLibrary(cupy)
    monkeypatch.setitem(placing.switching, "cupy", made)
    yield made
    assert cupy.current() == 0


def array(where: int) -> FakeArray:
    x = np.arange(4.0).view(FakeArray)
    x.where = where
    return x


def test_only_another_device_is_switched_to(lib: CuPyLibrary, cupy: FakeCuPy) -> None:
    for device, inside, switches in (("cuda:0", 0, []), ("cuda", 0, []), ("cuda:1", 1, [1])):
        with lib.on(device):
            assert cupy.current() == inside
        assert cupy.switches == switches


def test_a_function_is_called_on_its_device(lib: CuPyLibrary, cupy: FakeCuPy) -> None:
    def where(*args: Any, **options: Any) -> Any:
        return cupy.current(), args, options

    assert lib.here("cuda:1", where)(1, b=2) == (1, (1,), {"b": 2})
    assert lib.here("cuda:0", where)() == (0, (), {})
    assert cupy.switches == [1]
    with lib.on("cuda:1"):
        assert lib.here("cuda:1", where)()[0] == 1
        assert lib.here("cuda:0", where)()[0] == 0


def test_streams_are_those_of_the_arrays_device_and_the_thread(
    lib: CuPyLibrary, cupy: FakeCuPy
) -> None:
    cupy.use(0, 100)
    cupy.use(1, 200)
    assert (lib.stream("cuda:0"), lib.stream("cuda:1"), lib.stream("cuda")) == (100, 200, 100)
    cupy.capturing.add(200)
    assert (lib.capturing("cuda:0"), lib.capturing("cuda:1")) == (False, True)
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(lib.stream("cuda:1")))
    thread.start()
    thread.join()
    assert found == [2]


def test_copies_stay_where_the_array_is(lib: CuPyLibrary) -> None:
    assert lib.copy(array(1)).where == 1


def test_placed_finds_the_first_array(lib: CuPyLibrary, cupy: FakeCuPy) -> None:
    @placing.placed
    def where(*args: Any, **options: Any) -> int:
        return cupy.current()

    matrix = SimpleNamespace(data=array(1))
    assert where(array(1)) == where(3, matrix) == where([matrix, 0]) == where(x=array(1)) == 1
    assert where(array(0), array(1)) == where(3, [], None, np.ones(2)) == 0
    assert where.__name__ == "where"


def test_front_doors_switch(
    lib: CuPyLibrary, cupy: FakeCuPy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library's own functions on a matrix that claims to be on the second device."""
    A = sf.eye(4)
    seen: list[int] = []
    monkeypatch.setattr(CuPyLibrary, "owns", lambda self, x: x is A.data)
    monkeypatch.setattr(CuPyLibrary, "device", lambda self, x: "cuda:1")
    for name, whole in vars(_arrays.ArrayLibrary).items():
        if callable(whole) and not name.startswith("_"):

            def spy(*args: Any, whole: Any = whole, **options: Any) -> Any:
                seen.append(cupy.current())
                return whole(*args, **options)

            monkeypatch.setattr(_arrays.ArrayLibrary, name, spy)
    calls: list[Any] = [
        lambda: A.to("coo"),
        lambda: A.to_dense(),
        lambda: A + A,
        lambda: A.multiply(A),
        lambda: A[1:3],
        lambda: sf.hstack([A, A]),
        lambda: A.problems(),
        lambda: A.sum(),
        lambda: sf.sddmm(A, np.ones((4, 2)), np.ones((2, 4))),
        lambda: A @ A,
        lambda: sf.CSR(A.data, A.indices, A.indptr, A.shape),
    ]
    for number, call in enumerate(calls):
        seen.clear()
        call()
        assert 1 in seen, number
        assert cupy.current() == 0


def test_other_libraries_do_not_switch() -> None:
    lib = _arrays.library("numpy")
    assert lib.here("cpu", len) is len
    with lib.on("cpu") as nothing:
        assert nothing is None
    assert not placing.switching or "cupy" in placing.switching
