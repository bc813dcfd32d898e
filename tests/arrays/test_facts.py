"""What plans are told apart by, of torch tensors: the switches, laziness, and what has no facts."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sparseformats._arrays.torch_ import TorchLibrary, tf32_switch


@pytest.fixture(autouse=True)
def switches_as_they_were() -> Iterator[None]:
    yield
    torch.backends.fp32_precision = "none"
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.fp32_precision = "none"


class OnGPU:
    """As much of a CUDA tensor as `facts` reads."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        self.dtype, self.device, self.shape = dtype, torch.device("cuda:0"), torch.Size((4, 2))
        self.is_cuda, self.requires_grad = True, False

    def stride(self) -> tuple[int, ...]:
        return 2, 1

    def data_ptr(self) -> int:
        return 48

    def is_neg(self) -> bool:
        return False

    is_conj = is_neg


@pytest.fixture
def lib(monkeypatch: pytest.MonkeyPatch) -> TorchLibrary:
    made = TorchLibrary(torch)
    monkeypatch.setattr(made, "_kinds", made._learn() | {OnGPU})
    return made


def use_new(value: str) -> None:
    torch.backends.cuda.matmul.fp32_precision = value


def use_generic(value: str) -> None:
    torch.backends.fp32_precision = value


def use_allow(value: str) -> None:
    torch.backends.cuda.matmul.allow_tf32 = value == "tf32"


def use_old(value: str) -> None:
    torch.set_float32_matmul_precision("high" if value == "tf32" else "highest")


@pytest.mark.parametrize("use", [use_new, use_generic, use_allow, use_old])
def test_every_way_to_switch_is_seen_and_is_a_fact_of_float32_on_a_gpu(
    lib: TorchLibrary, use: Any
) -> None:
    x, half, host = OnGPU(), OnGPU(torch.float16), torch.ones(4, 2)
    facts = lib.facts(x), lib.facts(half), lib.facts(host)
    assert not lib.allows_tf32(x)
    use("tf32")
    assert lib.allows_tf32(x)
    assert not lib.allows_tf32(half)
    assert not lib.allows_tf32(host)
    assert lib.facts(x) != facts[0]
    assert (lib.facts(half), lib.facts(host)) == facts[1:]
    use("ieee")
    assert lib.facts(x) == facts[0]


def test_the_switch_is_read_after_old_and_new_ways_were_mixed(lib: TorchLibrary) -> None:
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    with pytest.raises(RuntimeError):
        _ = torch.backends.cuda.matmul.allow_tf32
    assert lib.allows_tf32(OnGPU())
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    assert not lib.allows_tf32(OnGPU())


def test_older_versions_of_torch() -> None:
    matmul = SimpleNamespace(fp32_precision="ieee", allow_tf32=True)
    cuda = SimpleNamespace(matmul=matmul)
    module = SimpleNamespace(_C=SimpleNamespace(), backends=SimpleNamespace(cuda=cuda))
    switch = tf32_switch(module)
    assert not switch()
    matmul.fp32_precision = "tf32"
    assert switch()
    del matmul.fp32_precision
    switch = tf32_switch(module)
    assert switch()
    matmul.allow_tf32 = False
    assert not switch()


def test_what_has_no_facts() -> None:
    lib, eye = TorchLibrary(torch), torch.eye(4)

    class Own(torch.Tensor):
        pass

    for x in (eye.to_sparse(), eye.to_mkldnn(), eye.as_subclass(Own)):
        assert lib.facts(x) is None


def test_every_fact_that_differs_makes_other_facts() -> None:
    lib = TorchLibrary(torch)
    memory = torch.arange(64, dtype=torch.float32)
    x = memory[:8].view(2, 4)
    z = torch.ones(2, 4, dtype=torch.complex64)
    with torch.no_grad():
        unrecorded = lib.facts(torch.nn.Parameter(x))
    all_facts = [
        lib.facts(x),
        lib.facts(x.view(4, 2)),
        lib.facts(x.T),
        lib.facts(x.view(torch.int32)),
        lib.facts(memory[1:9].view(2, 4)),
        lib.facts(x.to("meta")),
        lib.facts(torch.nn.Parameter(x)),
        unrecorded,
        lib.facts(z),
        lib.facts(z.conj()),
        lib.facts(z.conj().imag),
        lib.facts(z.imag),
    ]
    assert None not in all_facts
    assert len(set(all_facts)) == len(all_facts)
    assert lib.facts(memory[4:12].view(2, 4)) == lib.facts(x)
