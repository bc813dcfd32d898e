"""Launch parameters: they fit the hardware; a forced set comes first, then tables, then rules."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparseformats.dispatch import Query
from sparseformats_kernels.triton import configs, costs
from sparseformats_kernels.triton.configs import Config

KERNELS = ("triton-blocks", "triton-tiles")
BLOCKS = [(16, 16), (32, 32), (64, 64), (128, 128), (256, 256), (192, 64), (16, 64), (64, 16)]
PROCESSORS = 132


def query(block: tuple[int, int], n: int = 4096, **facts: Any) -> Query:
    given: dict[str, Any] = {"m": 8192, "k": 4096, "a_dtype": "bfloat16", "capability": (9, 0)}
    return Query("matmul", "bsr", n=n, blocksize=block, **(given | facts))


def shared_bytes(config: Config) -> int:
    stage = config.G * (config.BM + config.BN) * config.BK * 2
    return config.stages * stage + config.turns * config.BM * config.BN // config.pieces * 2


@pytest.mark.parametrize("n", [1, 16, 64, 65, 200, 512, 4096, 100_000])
@pytest.mark.parametrize("m", [16, 1000, 100_000])
@pytest.mark.parametrize("block", BLOCKS)
def test_the_rule_fits_the_hardware(block: tuple[int, int], m: int, n: int) -> None:
    for transposed in (False, True):
        stored = block[::-1] if transposed else block
        for stored_blocks in (None, 0, 5000):
            facts = {"m": m, "transposed": transposed, "nnzb": stored_blocks}
            found = configs.specialised(query(stored, n, **facts), PROCESSORS)
            assert block[0] % found.BM == 0
            assert block[1] % found.BK == 0
            assert shared_bytes(found) <= configs.SHARED - configs.RESERVED
            assert found.stages >= 2
            assert 128 * 32 * found.warps >= found.BM * found.BN
            assert 2 * max(n, 33) > found.BN


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("n", [16, 128, 8192])
@pytest.mark.parametrize("block", BLOCKS)
def test_candidates_fit_the_hardware(block: tuple[int, int], n: int, kernel: str) -> None:
    found = configs.candidates(kernel, query(block, n), PROCESSORS)
    assert found[0] == configs.RULES[kernel](query(block, n), PROCESSORS)
    assert len(found) == len(set(found)) > 1
    for config in found:
        assert 128 * 32 * config.warps >= config.BM * config.BN
        if kernel == "triton-blocks":
            assert shared_bytes(config) <= configs.SHARED - configs.RESERVED


def table(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "h200.json").write_text(json.dumps({"provenance": {}, "rows": rows}))


def row(asked: Query, config: Config) -> dict[str, Any]:
    facts, sizes = configs.facts_of(asked), configs.sizes_of(asked)
    made = {"kernel": "triton-blocks", "facts": facts, "sizes": sizes}
    return json.loads(json.dumps(made | {"config": configs.as_row(config)}))


@pytest.fixture
def _tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(configs, "__file__", str(tmp_path / "configs.py"))
    configs._rows.cache_clear()
    yield
    configs._rows.cache_clear()


@pytest.mark.usefixtures("_tables")
def test_the_nearest_measured_bucket_counts(tmp_path: Path) -> None:
    small, large = query((64, 64), 512), query((64, 64), 8192)
    first, second = Config(64, 128, 64, stages=5), Config(64, 256, 64, stages=3)
    table(tmp_path, [row(small, first), row(large, second)])
    near = configs.choose("triton-blocks", query((64, 64), 700), PROCESSORS)
    assert replace(near, source="rule") == first
    assert near.source.startswith("h200.json: ")
    assert "n 512" in near.source
    far = configs.choose("triton-blocks", query((64, 64), 6000), PROCESSORS)
    assert replace(far, source="rule") == second
    for other in (
        query((64, 64), 1),  # too far
        query((32, 32), 512),  # of another kind
        query((64, 64), 512, a_dtype="float16"),
        query((64, 64), 512, capability=(10, 0)),
        query((64, 64), 512, x_layout="F"),
    ):
        assert configs.choose("triton-blocks", other, PROCESSORS).source == "rule"


@pytest.mark.usefixtures("_tables")
def test_forced_parameters_come_first() -> None:
    asked, mine = query((64, 64)), Config(64, 128, 64, stages=2)
    with configs.with_config("triton-blocks", mine):
        assert configs.choose("triton-blocks", asked, PROCESSORS) == replace(mine, source="forced")
        with configs.with_config("triton-blocks", {"BM": 64, "BN": 64, "BK": 64}):
            assert configs.choose("triton-blocks", asked, PROCESSORS).BN == 64
        assert configs.choose("triton-blocks", asked, PROCESSORS).BN == 128
    assert configs.choose("triton-blocks", asked, PROCESSORS).source == "rule"


@pytest.mark.parametrize("size", [16, 32])
def test_block_rows_that_share_more_cost_less(size: int) -> None:
    """Told or not, scattered blocks cost about the same; the least union is a block a tile."""
    stored = round(0.1 * (8192 // size) ** 2)
    asked = replace(query((size, size), 4096), m=8192, k=8192, nnzb=stored)
    high = configs.shared(asked, PROCESSORS).BM // size
    scattered = (1 - 0.9**high) / (0.1 * high)
    times = [costs.shared(replace(asked, union=u)) for u in (1.0, scattered, 0.3, size / 128)]
    assert times == sorted(times, reverse=True)
    assert times[1] == pytest.approx(costs.shared(asked), rel=0.02)
    assert times[0] > times[-1] * 1.1
    assert costs.blocks(replace(asked, union=0.2)) == costs.blocks(asked)


def test_unknown_parameters_are_refused() -> None:
    with (
        pytest.raises(ValueError, match="unknown launch parameters BQ"),
        configs.with_config("triton-blocks", {"BM": 64, "BQ": 1}),
    ):
        pass


def test_a_query_without_a_block_size_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="must name the block size"):
        configs.choose("triton-blocks", replace(query((64, 64)), blocksize=None), PROCESSORS)


def test_shipped_tables_are_of_this_kind() -> None:
    """Every measured row is found again by its own call, and fits the hardware."""
    rows = configs._rows()
    assert rows
    for found in rows:
        assert set(found["facts"]) == set(configs.facts_of(query((64, 64))))
        assert set(found["sizes"]) == set(configs.sizes_of(query((64, 64))))
        config = Config(**found["config"])
        assert found["facts"]["blocksize"][0] % config.BM == 0
        assert found["facts"]["blocksize"][1] % config.BK == 0
        assert shared_bytes(config) <= configs.SHARED - configs.RESERVED
    for path in (Path(configs.__file__).parent / "tables").glob("*.json"):
        provenance = json.loads(path.read_text())["provenance"]
        assert {"device", "versions", "commit", "date", "repetitions", "spread"} <= set(provenance)
