import json

from dispatch_fakes import Q, costs, record

from sparseformats.dispatch import Reason, checks, explain, kernels, register, select
from sparseformats.dispatch.explanation import WIDTH


def three():
    register(record("cheap", cost=costs(12.34), doc="does it"))
    register(record("dear", cost=costs(123456.7)))
    register(record("refused", checks=(checks.divides("k", 16), checks.library_is("torch"))))


def test_golden_text():
    three()
    assert str(explain(Q)) == (
        "matmul: csr (6 x 50, nnz 20, float32) @ (50 x 3, float32), numpy on cpu\n"
        "chosen: cheap (cost model)\n"
        "\n"
        "kernel   status    time (us)  reasons\n"
        "-------  --------  ---------  " + "-" * 60 + "\n"
        "cheap    chosen        ~12.3\n"
        "dear     eligible   ~123,457\n"
        "refused  refused              needs K % 16 == 0, has K = 50 [divisibility]\n"
        "                                hint: pad K to a multiple of 16\n"
        "                              needs arrays of torch, has numpy [library]\n"
        "                                hint: A.to_library('torch')"
    )


def test_long_reasons_are_wrapped():
    long = Reason("size", "needs " + "very " * 60 + "much", "try " + "harder " * 40)
    register(record("a" * 50, checks=(lambda query: long,)))
    lines = str(explain(Q)).splitlines()
    assert len(lines) > 8
    assert max(map(len, lines)) <= WIDTH
    assert "much [size]" in " ".join(str(explain(Q)).split())


def test_rows_are_ordered():
    three()
    register(record("almost", checks=(checks.device_is("cuda"),)))
    rows = explain(Q).rows
    assert [row.kernel for row in rows] == ["cheap", "dear", "almost", "refused"]
    assert [row.status for row in rows] == ["chosen", "eligible", "refused", "refused"]
    assert [row.kernel for row in explain(Q, kernel="dear").rows][:2] == ["dear", "cheap"]


def test_dict_is_json_able_and_says_the_same():
    three()
    explanation = explain(Q)
    facts = json.loads(json.dumps(explanation.to_dict()))
    assert facts["chosen"] == "cheap"
    assert facts["source"] == "cost model"
    assert facts["forced"] is None
    assert facts["query"]["k"] == 50
    assert facts["kernels"][0] == {
        "kernel": "cheap", "status": "chosen", "microseconds": 12.34, "measured": False,
        "rough": False, "reasons": [], "doc": "does it", "note": "",
    }  # fmt: skip
    assert facts["kernels"][2]["reasons"][0] == {
        "code": "divisibility", "message": "needs K % 16 == 0, has K = 50",
        "hint": "pad K to a multiple of 16",
    }  # fmt: skip


def test_selection_carries_the_same_explanation():
    three()
    assert select(Q).explanation == explain(Q)


def test_unknown_row():
    import pytest

    with pytest.raises(KeyError, match="no kernel 'x' of 'matmul'"):
        explain(Q).row("x")


def test_empty():
    assert str(explain(Q)).endswith("numpy on cpu\nno kernel is registered for matmul")


def test_kernels_lists_and_prints():
    from sparseformats.dispatch import Requirement

    three()
    register(record("gone", requires=(Requirement("sfake-dep", "2"),), checks=(len,)))
    register(record("other", "sddmm"))
    listed = kernels("matmul")
    assert [info.name for info in listed] == ["cheap", "dear", "gone", "refused"]
    assert [info.available for info in listed] == [True, True, False, True]
    assert [info.name for info in kernels("matmul", "numpy")] == ["cheap", "dear", "gone"]
    assert "refused" in [info.name for info in kernels(library="torch")]
    assert json.loads(json.dumps(listed[2].to_dict()))["reasons"][0]["code"] == "missing-package"
    assert listed[3].needs == ("K % 16 == 0", "arrays of torch")
    text = str(kernels())
    assert "needs sfake-dep >= 2, which is not installed [missing-package]" in text
    assert "csr; K % 16 == 0; arrays of torch" in text
    assert max(map(len, text.splitlines())) <= WIDTH
    assert str(kernels("nothing")) == "no kernels"


def test_kernels_reports_failed_loads():
    import pytest

    from sparseformats.errors import KernelLoadWarning

    register(record("a", target="sfake_broken:kernel", formats=("*",)))
    assert kernels()[0].available
    assert "any format" in str(kernels())
    with pytest.warns(KernelLoadWarning), pytest.raises(NotImplementedError):
        select(Q)
    assert [r.code for r in kernels()[0].reasons] == ["failed-to-load"]
