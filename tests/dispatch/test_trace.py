import contextvars
import threading

from dispatch_fakes import Q

from sparseformats.dispatch import Run, is_tracing, record_run, tracing


def test_records_within_the_block_only():
    record_run("matmul", "before")
    assert not is_tracing()
    with tracing() as trace:
        assert is_tracing()
        assert str(trace) == "no kernel ran"
        record_run("matmul", "a", Q, 1.5e-3)
        record_run("sddmm", "b")
    record_run("matmul", "after")
    assert trace.kernels == ["a", "b"]
    assert list(trace) == [Run("matmul", "a", Q, 1.5e-3), Run("sddmm", "b")]
    assert len(trace) == 2
    assert trace[0].query is Q
    assert str(trace) == "matmul: a, 1,500.0 us\nsddmm: b"


def test_nesting():
    with tracing() as outer:
        record_run("matmul", "a")
        with tracing() as inner:
            record_run("matmul", "b")
        record_run("matmul", "c")
    assert outer.kernels == ["a", "b", "c"]
    assert inner.kernels == ["b"]


def test_threads_have_their_own_traces_unless_a_context_is_handed_over():
    with tracing() as trace:
        plain = threading.Thread(target=record_run, args=("matmul", "hidden"))
        context = contextvars.copy_context()
        handed = threading.Thread(target=context.run, args=(record_run, "matmul", "seen"))
        for thread in (plain, handed):
            thread.start()
            thread.join()
    assert trace.kernels == ["seen"]
