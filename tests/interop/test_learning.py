"""The tool that learns layouts of blobs on a device, here with stand-ins for the library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparseformats as sf
from sparseformats.formats.blob24 import LEARNT, BlobLayout, encode

from . import blobs

torch = pytest.importorskip("torch")
from tests.gpu import cusparselt_layout as tool  # noqa: E402 - it needs torch

RIGHT = LEARNT[blobs.VERSION, blobs.CAPABILITY, "int8"]
OTHER = BlobLayout("r0 r1 c0 c1 r2 r3 c2 c3 r4 r5", "made up")


def library(layout: BlobLayout) -> Any:
    """What compresses in a layout, and refuses rows that it does not know."""

    def compress(bits: Any, dtype: str) -> Any:
        if layout.unfit(bits.shape):
            raise RuntimeError("CUDA error: invalid value\nand more")
        x = torch.from_numpy(np.ascontiguousarray(bits)).view(getattr(torch, dtype))
        return encode(layout, sf.from_dense(x, "2:4")).numpy()

    return compress


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "SHAPES", [(32, 64), (64, 64), (96, 192)])
    monkeypatch.setattr(tool, "OTHERS", [(48, 64)])
    monkeypatch.setattr(tool, "SHIFTS", {"int8": 0})


def gathered(layout: BlobLayout) -> dict[str, Any]:
    said: list[str] = []
    data = tool.gather(library(layout), said.append)
    assert said == ["int8/48x64/v0 was refused: CUDA error: invalid value"]
    return data


@pytest.mark.parametrize("layout", [RIGHT, OTHER])
def test_a_layout_is_learnt(layout: BlobLayout) -> None:
    assert tool.learn(gathered(layout), "int8") == (layout.bits, {}, {})


def test_what_is_laid_out_otherwise_is_told() -> None:
    """A byte of a blob of another shape; values; a tile; what is no permutation of bits."""
    for key, change, text in (
        ("int8/96x192/rand", (slice(-1, None), 0xE0), "cannot be read"),
        ("int8/96x192/rand", (slice(0, 2), 77), "is read otherwise"),
        ("int8/32x64/b3", (slice(-600, -512), 0), "is made otherwise"),
    ):
        data = gathered(RIGHT)
        data[key][change[0]] = change[1]
        found = tool.learn(data, "int8")
        assert found.bits == RIGHT.bits
        assert [text in fault for fault in found.wrong.values()] == [True], found.wrong
        assert list(found.wrong) == [key.split("/")[1]]
    data = gathered(RIGHT)
    data["int8/96x192/rand"] = np.append(data["int8/96x192/rand"], np.zeros(96, np.uint8))
    assert "has" in tool.learn(data, "int8").wrong["96x192"]


@pytest.mark.parametrize(
    ("key", "text"),
    [("p1", "(0, 2) have other codes"), ("b0", "once each")],
)
def test_codes_that_are_not_understood(key: str, text: str) -> None:
    data = gathered(RIGHT)
    data[f"int8/64x64/{key}"][-1] = 0xEE
    data[f"int8/64x64/{key}"][-2] = 0x44
    found = tool.learn(data, "int8")
    assert found.bits is None
    assert text in found.wrong["64x64"]


@pytest.mark.parametrize(
    ("turn", "text"), [(1, "not made of bits"), (None, "depend on each other")]
)
def test_orders_that_are_no_permutation_of_bits(turn: int | None, text: str) -> None:
    data = gathered(RIGHT)
    for key in data:
        if key.startswith("int8/64x64/") and not key.endswith("_in"):
            codes = data[key][-512:]
            # All places turned by one byte; or the last two bytes exchanged.
            codes[...] = np.roll(codes, turn) if turn else codes[[*range(510), 511, 510]]
    found = tool.learn(data, "int8")
    assert found.bits is None
    assert text in found.wrong["64x64"]


def test_the_table_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    right, other = (tool.learn(gathered(layout), "int8") for layout in (RIGHT, OTHER))
    assert tool.tell({"int8": right}, 800, (9, 0)) == 0
    assert "as the table" in capsys.readouterr().out
    assert tool.tell({"int8": other}, 800, (9, 0)) == 1
    assert "TABLE WRONG" in capsys.readouterr().out
    assert tool.tell({"int8": other}, 900, (9, 0)) == 0
    said = capsys.readouterr().out
    assert f'(900, (9, 0), "int8"): BlobLayout("{OTHER.bits}", ...)' in said
    assert "not in the table" in said
    assert tool.tell({"int8": tool.Finding(None, {"64x64": "why"}, {})}, 800, (9, 0)) == 1
    assert "NOT UNDERSTOOD" in capsys.readouterr().out


def test_a_file_is_learnt_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "all.npz", tmp_path / "few.npz"
    np.savez_compressed(source, **gathered(RIGHT))  # type: ignore[arg-type]
    assert tool.main(["--read", str(source), "--fixture", str(out)]) == 0
    assert f'"int8"): BlobLayout("{RIGHT.bits}", ...)' in capsys.readouterr().out
    with np.load(out) as found:
        assert set(found) == {"in/32x64", "int8/32x64", "in/96x192", "int8/96x192"}


def test_values_that_come_back_changed() -> None:
    assert tool.kept_values(library(RIGHT), "int8") == {}

    def changes(bits: Any, dtype: str) -> Any:
        found = library(RIGHT)(bits, dtype).copy()
        found[found == 7] = 8
        return found

    assert tool.kept_values(changes, "int8") == {"0x7": "0x8"}


def test_other_shapes_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def compress(bits: Any, dtype: str) -> Any:
        wide = np.zeros((64, 64), bits.dtype)
        wide[: len(bits), : bits.shape[1]] = bits
        blob = library(RIGHT)(wide, dtype)
        return np.concatenate([blob[: bits.size // 2], blob[wide.size // 2 :]])

    monkeypatch.setattr(tool, "SHAPES", [(64, 64)])
    found = tool.learn(tool.gather(compress), "int8")
    assert found.others == {"48x64": "2048 bytes; codes as of (64, 64) behind values by row: True"}
