"""The roofline's arithmetic, by cases computed by hand."""

import pytest

from benchmarks.gpu.roofline import CEILINGS, l2_model_us, roofline_us, work_of


def test_a_small_product_counted_by_hand() -> None:
    # 3 blocks of 2 x 4 over two block columns, N = 5, half types: 16 B a block.
    work = work_of(shape=(6, 12, 5), block=(2, 4), blocks=3, used_columns=2, dtype="float16")
    assert work.operations == 2 * 3 * 2 * 4 * 5
    values, index = 3 * 16, 4 * (3 + 3 + 1)
    operand, result = 8 * 5 * 2, 6 * 5 * 2
    assert work.moved == values + index + operand + result
    # One tile of columns: each block brings its values once and 4 rows of the operand.
    assert work.cached == 3 * 4 * 5 * 2 + values


def test_rows_of_the_operand_beyond_the_matrix_are_not_counted() -> None:
    work = work_of(shape=(4, 6, 1), block=(4, 4), blocks=2, used_columns=2, dtype="float32")
    assert work.moved == 2 * 16 * 4 + 4 * (2 + 1 + 1) + 6 * 4 + 4 * 4


def test_values_are_brought_once_for_each_tile_of_columns() -> None:
    shared = {"block": (64, 64), "blocks": 10, "used_columns": 8, "dtype": "bfloat16"}
    one = work_of(shape=(512, 512, 256), **shared)
    two = work_of(shape=(512, 512, 257), **shared)
    values = 10 * 64 * 64 * 2
    assert two.cached - one.cached == values + 10 * 64 * 2


def test_the_larger_of_both_times_counts() -> None:
    # 8192 cubed, a tenth of 128-blocks: 410 of 4096; the arithmetic takes longer.
    large = work_of(
        shape=(8192, 8192, 8192), block=(128, 128), blocks=410, used_columns=64, dtype="bfloat16"
    )
    assert roofline_us(large, "bfloat16") == pytest.approx(
        2 * 410 * 128 * 128 * 8192 / 790e12 * 1e6
    )
    # One column: bytes.
    narrow = work_of(
        shape=(8192, 8192, 1), block=(128, 128), blocks=410, used_columns=64, dtype="bfloat16"
    )
    assert roofline_us(narrow, "bfloat16") == pytest.approx(narrow.moved / 4.3e12 * 1e6)


def test_the_cache_model_stands_where_the_simple_kernel_was_measured() -> None:
    # 64-blocks at a tenth: 1638 blocks bring 1638 * (64 * 8192 * 2 + 64 * 64 * 2 * 32) bytes.
    work = work_of(
        shape=(8192,) * 3, block=(64, 64), blocks=1638, used_columns=128, dtype="bfloat16"
    )
    assert work.cached == 1638 * (1048576 + 262144)
    assert l2_model_us(work) == pytest.approx(work.cached / 6.95e12 * 1e6)


def test_every_dtype_of_the_cases_has_a_ceiling() -> None:
    from benchmarks.gpu.suite import suite

    assert {case.dtype for case in suite()} <= set(CEILINGS)
