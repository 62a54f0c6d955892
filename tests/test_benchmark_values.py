"""The benchmark of values measures what it says: games with known values, verdicts, the pipe to the rivals."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(autouse=True)
def _on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def module(name: str) -> Any:
    return importlib.import_module(name)


@pytest.mark.parametrize("family", ["any_of", "coverage", "curve", "pairs", "team", "unanimity", "vote"])
def test_the_values_of_every_family_are_those_of_its_table(family: str) -> None:
    games, n = module("values_games"), 7
    game = games.make(family, n, seed=3)
    table = games.table_of(game)
    share = np.array([1, 6, 15, 20, 15, 6, 1]) * n  # n · C(n − 1, s)
    by_hand = np.zeros(n)
    for mask in range(2**n):
        for i in range(n):
            if not mask >> i & 1:
                by_hand[i] += (table[mask | 1 << i] - table[mask]) / share[mask.bit_count()]
    np.testing.assert_allclose(game.shapley, by_hand, atol=1e-12)
    assert game.evaluations == 2**n


def test_a_team_of_two_sub_teams_has_the_values_of_its_table() -> None:
    from macredit.values import shapley

    games = module("values_games")
    game = games.make("team", 18, seed=0)  # sub-teams of nine
    np.testing.assert_allclose(game.shapley, shapley(games.table_of(game)), atol=1e-12)


def test_error_is_relative_to_the_length_of_the_values() -> None:
    game = module("values_games").Game(2, lambda rows: rows @ np.array([3.0, 4.0]), np.array([3.0, 4.0]))
    assert game.error([3.0, 5.0]) == 1 / 25  # 1² / (3² + 4²)


def test_the_verdict_of_a_row() -> None:
    rows = module("values_rows")

    def verdict(measured: float | None) -> str:
        limits = rows.at_least(100.0), rows.at_least(200.0)
        return str(rows.Row("speed", rows.times, *limits, measured, "").verdict)

    assert [verdict(x) for x in (250.0, 150.0, 99.0, None)] == ["stretch", "must", "MISSED", "not measured"]
    assert rows.Row("told", rows.times, None, None, 3.0, "").verdict == ""
    assert not rows.Row("told", rows.times, None, None, None, "").failed
    line = rows.Row("covered", rows.percent, (0.93, 0.97), None, 0.951, "2,000 games").line()
    assert line.split() == ["covered", "95.1", "%", "93.0", "%–97.0", "%", "must", "2,000", "games"]


def test_numbers_as_they_are_shown() -> None:
    rows = module("values_rows")
    assert [rows.times(2.5), rows.times(81_000), rows.part(0.4)] == ["2.5×", "81,000×", "1/2.5"]
    assert [rows.seconds(x) for x in (2.0, 0.0123, 7.5e-6, 4e-8)] == ["2 s", "12.3 ms", "7.5 µs", "40 ns"]


def test_source_for_an_older_python() -> None:
    source = "from typing import TYPE_CHECKING, override\nif TYPE_CHECKING:\n    type Model = Tree | Forest\n"
    assert module("values_setup").edited(source) == (
        "from typing import TYPE_CHECKING\nfrom typing_extensions import override\n"
        "if TYPE_CHECKING:\n    Model = Tree | Forest\n"
    )


def test_the_worker_answers_and_reports_failures() -> None:
    sides, games = module("values_sides"), module("values_games")
    rivals = sides.Rivals(Path(sys.executable))
    try:
        assert "numpy" in rivals("versions")
        truth = games.make("curve", 9, seed=1).shapley
        np.testing.assert_array_equal(rivals("true_values", ("curve", 9, 1)), truth)
        with pytest.raises(sides.RivalError, match="true_values: KeyError: 'chess'"):
            rivals("true_values", ("chess", 9, 1))
    finally:
        rivals.close()


def test_rows_without_rivals_stay_open() -> None:
    sides, rows = module("values_sides"), module("values_rows")
    bench = sides.Bench(None, quick=False, seed=0, repeats=1, verbose=False)
    row = sides.row("speed", rows.times, rows.at_least(2.0), None, lambda: bench.theirs("versions"))
    assert (row.measured, row.how, row.failed) == (None, "no rivals: run with --setup first", True)


def test_rounding_and_memory_are_noticed() -> None:
    from macredit.values import banzhaf

    precision = module("values_precision")

    def shapley(table: Any) -> Any:
        return np.asarray(banzhaf(table))

    assert precision.largest_error(banzhaf, 6) < 1e-15
    assert precision.largest_error(shapley, 6) > 1e-3
    peak, how = precision.peak_memory(lambda table: np.ones(4_000_000).sum() + table[0], np.zeros(4))
    assert peak is None or 30e6 < peak < 40e6, how


def test_strict_fails_where_a_must_is_not_met(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    values, rows = module("values"), module("values_rows")

    def missed(bench: Any) -> Iterator[Any]:
        yield rows.Row("speed", rows.times, rows.at_least(2.0), None, 1.0 if bench.quick else 3.0, "1 s against 1 s")

    monkeypatch.setattr(values, "GROUPS", {"speed": missed})
    assert values.main(["--quick", "--strict"]) == 1
    assert "1 musts, 1 not met" in capsys.readouterr().out
    assert values.main(["--quick"]) == 0
    with pytest.raises(SystemExit):
        values.main(["--only", "chess"])


def test_the_chance_of_scores_on_tasks() -> None:
    told = module("values_told")
    noted = told.Scores()
    for task, mask, score in ((1, 1, 0.0), (1, 2, 1.0), (1, 3, 1.0), (2, 3, 0.0)):
        noted.add(task, mask, score)
    tables = np.array([[0.0, 0.2, 0.5, 0.6], [0.0, 0.5, 0.2, 0.6]])
    # task 1: too hard for {0}, not for {1}; task 2: too hard for both together. The other way round it cannot be
    np.testing.assert_allclose(np.exp(noted.log_chance(tables)), [0.3 * 0.4, told.LEAST * 0.4])
