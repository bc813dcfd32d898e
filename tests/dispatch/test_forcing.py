import asyncio
import threading

import pytest
from dispatch_fakes import Q, costs, python, record

from sparseformats.dispatch import checks, explain, forcing, register, select, use_kernel
from sparseformats.errors import NoKernelError


@pytest.fixture(autouse=True)
def three_kernels():
    for name, cost in (("alpha", 1), ("beta", 2), ("gamma", 3)):
        register(record(name, cost=costs(cost)))
    register(record("alpha", "sddmm"))
    register(record("omega", "sddmm", cost=costs(0)))


def chosen(op="matmul", **options):
    from dataclasses import replace

    return select(replace(Q, op=op), **options).name


def test_nesting_and_restoring():
    assert chosen() == "alpha"
    with use_kernel("beta"):
        assert chosen() == "beta"
        with use_kernel("gamma"):
            assert chosen() == "gamma"
            assert explain(Q).source == "use_kernel"
            assert chosen(kernel="alpha") == "alpha"  # the argument wins
        assert chosen() == "beta"
        with pytest.raises(RuntimeError), use_kernel("gamma"):
            raise RuntimeError
        assert chosen() == "beta"
    assert chosen() == "alpha"
    assert explain(Q).source == "cost model"


def test_it_applies_to_every_operation_with_such_a_kernel_and_to_no_other():
    assert chosen("sddmm") == "omega"
    with use_kernel("alpha"):
        assert chosen("sddmm") == "alpha"
        with use_kernel("beta"):  # not a kernel of sddmm, so the outer block still rules there
            assert (chosen(), chosen("sddmm")) == ("beta", "alpha")
    with use_kernel("gamma"), use_kernel("alpha", op="sddmm"):
        assert (chosen(), chosen("sddmm")) == ("gamma", "alpha")


def test_a_forced_kernel_that_must_refuse_raises():
    register(record("cuda", checks=(checks.device_is("cuda"),)))
    with use_kernel("cuda"), pytest.raises(NoKernelError, match=r"cuda \(forced by use_kernel\)"):
        chosen()


@pytest.mark.parametrize(
    ("call", "texts"),
    [
        (
            lambda: select(Q, "alhpa"),
            ["kernel=: expected", "of 'matmul'", "got 'alhpa'", "did you"],
        ),
        (lambda: explain(Q, "gama"), ["did you mean 'gamma'"]),
        (lambda: select(Q, "omega"), ["which is a kernel of 'sddmm'", "known: alpha, beta, gamma"]),
        (lambda: use_kernel("omegaa").__enter__(), ["use_kernel: expected", "mean 'omega'"]),
        (lambda: use_kernel("beta", op="sddmm").__enter__(), ["of 'sddmm'", "kernel of 'matmul'"]),
        (lambda: use_kernel("x", op="nothing").__enter__(), ["known: none"]),
    ],
)
def test_unknown_names(call, texts):
    with pytest.raises(ValueError) as caught:
        call()
    for text in texts:
        assert text in str(caught.value)
    assert "{" not in str(caught.value)


def test_a_name_must_be_a_string():
    with pytest.raises(TypeError, match="kernel=: expected a kernel's name, got int"):
        select(Q, kernel=3)


def test_unknown_name_mentions_what_could_not_be_registered():
    from sparseformats.dispatch import REGISTRY, Reason
    from sparseformats.dispatch.sources import Refusal

    REGISTRY._refusals.append(Refusal("acme", Reason("backend-failed", "no driver")))
    with pytest.raises(ValueError, match="some kernels could not be registered"):
        select(Q, kernel="acme-fast")


def test_threads_do_not_see_each_other():
    names, barrier = {}, threading.Barrier(3)

    def work(name):
        with use_kernel(name):
            barrier.wait()
            names[name] = chosen()
            barrier.wait()

    threads = [threading.Thread(target=work, args=(name,)) for name in ("alpha", "beta", "gamma")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert names == {"alpha": "alpha", "beta": "beta", "gamma": "gamma"}


def test_tasks_do_not_see_each_other():
    async def work(name):
        with use_kernel(name):
            await asyncio.sleep(0.01)
            return chosen()

    async def both():
        return await asyncio.gather(work("beta"), work("gamma"))

    assert asyncio.run(both()) == ["beta", "gamma"]


ENVIRONMENT = """
import os
import sparseformats_kernels
sparseformats_kernels.BACKENDS = ()
from dispatch_fakes import Q, record, costs
from sparseformats.dispatch import *
register(record("alpha", cost=costs(1)))
register(record("beta", cost=costs(2)))
register(record("omega", "sddmm"))
"""


def test_environment():
    show = "print(explain(Q).verdict)\n"
    inner = "with use_kernel('alpha'): print(explain(Q).verdict)\n"
    change = "os.environ['SPARSEFORMATS_KERNEL'] = 'alpha'\n"
    out = python(ENVIRONMENT + show + inner + change + show, SPARSEFORMATS_KERNEL=" beta ")
    assert out.splitlines() == [
        "chosen: beta (forced by SPARSEFORMATS_KERNEL)",
        "chosen: alpha (forced by use_kernel)",
        "chosen: beta (forced by SPARSEFORMATS_KERNEL)",  # read once
    ]


@pytest.mark.parametrize("value", ["", "omega"])
def test_environment_that_is_empty_or_of_another_operation(value):
    out = python(ENVIRONMENT + "print(explain(Q).verdict)", SPARSEFORMATS_KERNEL=value)
    assert out.strip() == "chosen: alpha (cost model)"


def test_environment_with_an_unknown_name():
    code = ENVIRONMENT + "try: select(Q)\nexcept ValueError as error: print(error)"
    out = python(code, SPARSEFORMATS_KERNEL="bta")
    assert "SPARSEFORMATS_KERNEL: expected the name of a kernel, got 'bta'" in out
    assert "did you mean 'beta'" in out


def test_forced_by_says_where():
    assert forcing.forced_by("matmul", None) is None
    assert forcing.forced_by("matmul", "beta") == ("beta", "kernel=")
