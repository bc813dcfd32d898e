"""The page of GPU results: rows beside their goals, gaps, plots; whatever rows there are."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

EXTENSIONS = Path(__file__).resolve().parents[2] / "docs" / "_ext"
SHARED = {"versions": {"torch": "2.11"}, "commit": "abcdef0123456789", "date": "2026-01-01"}


@pytest.fixture(autouse=True)
def extensions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXTENSIONS))


def row(id: str, ratio: float = 5.0, **options: Any) -> dict[str, Any]:
    case = {"m": 8192, "k": 8192, "n": 8192, "block": [64, 64], "density": 0.1}
    return {
        "id": id,
        "kernel": "triton-blocks",
        "baseline": f"{'cuBLAS' if id[0] in 'BW' else 'another'} (and which of its sides)",
        "ours_us": 250.0,
        "baseline_us": 1250.0,
        "ratio": ratio,
        "ratio_is": "speed-up: baseline / ours",
        "spread": 0.0123,
        "share_of_roofline": 0.56,
        "goal": "6.2x",
        "met": ratio >= 6.2,
        "device": "NVIDIA H200",
        "case": {**case, "pattern": "uniform", "dtype": "bfloat16"},
        **SHARED,
        **options,
    }


ROWS = [  # one point of a curve, which is no curve
    row("B-64-0.1"),
    row("T-64-0.1-tuned", goal="1.6x, where the dense ceiling leaves room", met=None, room=1.4),
    row("E-64-0.2", error="no | kernel", met=False),
    row("L-skew-10", 1.21, goal="<= 1.10x", met=False),
    row("X-llm", 3.6, goal="geomean 3.5x", met=True),
    row("W-x", goal=None, met=None, case=None),
    row("B-64-0.1@cusparse-bsr"),
]


def page(rows: list[dict[str, Any]]) -> str:
    return "\n".join(importlib.import_module("gpu_rows").page(rows))


def line(id: str) -> str:
    return next(text for text in page(ROWS).splitlines() if text.startswith(f"| {id} |"))


def test_a_row_stands_beside_its_goal_with_the_gap() -> None:
    assert line("B-64-0.1") == (
        "| B-64-0.1 | triton-blocks | 250.0 | 1250.0 | 5.0 | 6.2x | no, 19% short | 1.2% | 56% |"
    )
    assert "| <= 1.10x | no, 10% short |" in line("L-skew-10")
    assert "| geomean 3.5x | yes |" in line("X-llm")
    assert "no room (1.40x)" in line("T-64-0.1-tuned")
    assert "not measured: no \\| kernel" in line("E-64-0.2")


def test_rows_are_grouped_and_forced_kernels_left_out() -> None:
    text = page(ROWS)
    places = [text.index(f"**{title}") for title in ("Blocks against dense", "Blocked-ELL", "CSR")]
    assert places == sorted(places)
    assert "@" not in text
    assert "1 of 4 goals are met" in text
    assert "NVIDIA H200, commit abcdef012345, 2026-01-01; torch 2.11" in text


def test_groups_without_rows_say_so() -> None:
    assert page(ROWS).count("No row was measured.") == 9
    assert page([]).startswith("Nothing has been measured yet.")


def by_columns() -> list[dict[str, Any]]:
    rows = []
    for n, ratio, kernel in (
        (1, 2.0, "triton-nm"),
        (512, 1.2, "cusparselt"),
        (16, 1.4, "triton-nm"),
        (64, 1.001, "cublas-dense"),
        (1024, 1.5, "cusparselt"),
    ):
        made = row(f"W-semi-4096x4096-{n}", ratio, kernel=kernel, goal=None, met=None)
        made["case"] = {**made["case"], "m": 4096, "k": 4096, "n": n}
        rows.append(made)
    other = row("W-semi-64x64-8", 0.7, kernel="cusparselt", goal=None, met=None)
    other["case"] = {**other["case"], "m": 64, "k": 64, "n": 8}
    failed = {"id": "W-semi-64x64-16", "error": "no", "goal": None, **SHARED, "device": "d"}
    return [*rows, other, failed | {"ratio_is": "r", "baseline": "b"}]


def test_2_4_by_columns_says_where_it_pays() -> None:
    text = page([row("S-torch"), *by_columns()])
    assert "4096 x 4096: 2:4 pays at N = 1 to 16 and 512 to 1024." in text
    assert "64 x 64: 2:4 never pays." in text
    lines = [line for line in text.splitlines() if line.startswith("| 4096 x 4096")]
    assert [int(line.split("|")[2]) for line in lines] == [1, 16, 64, 512, 1024]
    assert "| W-semi-4096x4096-1 |" not in text
    assert "| W-semi-64x64-16 |" in text
    assert "by the number of columns" not in page(ROWS)


def test_break_even_lies_between_the_densities_around_it() -> None:
    plots = importlib.import_module("gpu_plots")
    assert plots.break_even([(0.1, 4.0), (0.4, 1.0), (0.8, 0.5)]) == pytest.approx(0.4)
    assert plots.break_even([(0.25, 2.0), (1.0, 0.5)]) == pytest.approx(0.5)
    assert plots.break_even([(0.1, 4.0), (0.4, 2.0)]) is None


def sweep() -> list[dict[str, Any]]:
    rows = []
    for density, ratio in ((0.8, 0.7), (0.1, 6.0), (0.5, 1.2)):
        made = row(f"W-{density}", ratio)
        made["case"] = {**made["case"], "density": density}
        rows.append(made)
    return rows


def test_curves_are_by_block_size_and_sorted_by_density() -> None:
    plots = importlib.import_module("gpu_plots")
    other = row("B-x")
    other["case"] = {**other["case"], "block": [16, 16]}
    found = plots.curves([*sweep(), other, row("T", baseline="torch BSR as shipped")], "ratio")
    assert found == {"8192 cubed, 64 x 64": [(0.1, 6.0), (0.5, 1.2), (0.8, 0.7)]}


def test_plots_are_drawn_with_their_break_even(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="of the docs extra")
    plots = importlib.import_module("gpu_plots")
    file, caption = plots.density_plot(sweep(), tmp_path, "h200")
    assert "Break-even (circles) at 8192 cubed, 64 x 64: 0.59" in caption
    first = file.read_text()
    assert first.lstrip().startswith("<?xml")
    plots.density_plot(sweep(), tmp_path, "h200")
    assert file.read_text() == first
    file, _ = plots.roofline_plot(sweep(), tmp_path, "h200")
    assert file.name == "h200_roofline.svg"
    assert plots.density_plot([], tmp_path, "h200") is None


PAGES = {"no file": None, "no rows": [], "no sweep": ROWS, "all": [*ROWS, *sweep()]}


@pytest.mark.parametrize("name", PAGES)
def test_the_page_builds_without_a_warning(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = PAGES[name]
    pytest.importorskip("sphinx", reason="of the docs extra")
    pytest.importorskip("myst_parser", reason="of the docs extra")
    pytest.importorskip("matplotlib", reason="of the docs extra")
    from sphinx.application import Sphinx
    from sphinx.util.docutils import docutils_namespace, patch_docutils

    gpu_rows = importlib.import_module("gpu_rows")
    monkeypatch.setattr(gpu_rows, "RESULTS", tmp_path)
    if rows is not None:
        (tmp_path / "h200.json").write_text(json.dumps(rows))
    source = tmp_path / "source"
    source.mkdir()
    text = "# Measured\n\n```{gpu-plots} h200.json\n```\n\n```{gpu-results} h200.json\n```\n"
    (source / "index.md").write_text(text)
    options = {"extensions": ["myst_parser", "tables"], "html_theme": "basic"}
    places = [str(tmp_path / name) for name in ("out", "trees")]
    with patch_docutils(None), docutils_namespace():
        app = Sphinx(str(source), None, *places, "html", options, status=None, warningiserror=True)
        app.build()
        assert app.statuscode == 0
    html = (tmp_path / "out" / "index.html").read_text()
    assert ("B-64-0.1" in html) == bool(rows)
    assert ("h200_density.svg" in html) == (name == "all")
    assert ("nothing to plot yet" in html) == (name != "all")
