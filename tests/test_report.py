import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from macredit.credit import METHODS, AgentCredit, Credits, credit
from macredit.episode import Episode, Turn, episode_from_json
from macredit.errors import UserError
from macredit.report import MethodResult, Report, agent_table, exact_index, mean_interval
from macredit.report.bars import bar, scale_of
from macredit.report.curves import curves
from macredit.report.explain import disagreements
from macredit.report.graph import team_graph
from macredit.report.share import learning_share, long_failures
from macredit.report.summary import messages, summary
from macredit.report.transcript import FOLD, transcripts
from macredit.report.wording import note, number
from macredit.rows import Rows, rows_of


def episode(name: str, turns: Sequence[Any], reward: float | None, **more: Any) -> Episode:
    said = [dict(zip(("agent", "text", "to"), turn, strict=False)) for turn in turns]
    return episode_from_json({"id": name, "task": "t", "reward": reward, "turns": said, **more})


def two(*rewards: float) -> Rows:
    turns = [("boss", "@hand go", ["hand"]), ("hand", "done", ["boss"])]
    return rows_of([episode(f"e{i}", turns, reward) for i, reward in enumerate(rewards)])


def by_hand(rows: Rows, agents: Sequence[AgentCredit], **columns: Any) -> Credits:
    N = len(rows)
    given_ = {"credit": np.zeros(N), "advantage": np.zeros(N), "weight": np.ones(N), "stderr": np.zeros(N)}
    return Credits(rows, reasons=(None,) * N, agents=tuple(agents), **{**given_, **columns})


def result(name: str, answer: Credits | None, **more: Any) -> MethodResult:
    return MethodResult(name, "paper", more.pop("settings", {}), answer, more.pop("cost", {}), **more)


# -- tables -----------------------------------------------------------------------------------------------------------


def test_agent_table_means_and_errors() -> None:
    agents = [
        AgentCredit(0, "boss", None, None, "always present"),
        AgentCredit(1, "boss", None, None, "always present"),
        AgentCredit(0, "hand", 1.0, 0.3),
        AgentCredit(1, "hand", 0.0, 0.4),
    ]
    boss, hand = agent_table(by_hand(two(1, 0), agents))
    assert (boss.agent, boss.credit, boss.reasons) == ("boss", None, {"always present": 2})
    # mean (1 + 0) / 2; sd = sqrt((.25 + .25) / 1) = .7071, / sqrt 2 = .5; estimates: sqrt(.09 + .16) / 2 = .25
    assert (hand.credit, hand.stderr, hand.estimate_stderr) == pytest.approx((0.5, 0.5, 0.25))
    # Student's t with 1 degree of freedom at 97.5 %: 12.706
    assert hand.margin == pytest.approx(12.706 * 0.5, abs=1e-3)


def test_one_estimate_that_is_unknown_makes_the_mean_s_unknown() -> None:
    agents = [AgentCredit(0, "hand", 1.0, None), AgentCredit(1, "hand", 0.0, 0.0)]
    boss, hand = agent_table(by_hand(two(1, 0), agents))
    assert hand.estimate_stderr is None
    assert boss.reasons == {"no credit was given": 2}


@settings(deadline=None)
@given(st.lists(st.floats(-10, 10), min_size=2, max_size=8))
def test_agent_table_is_numpy_s_mean_and_standard_error(credits_: list[float]) -> None:
    rows = two(*range(len(credits_)))
    hand = agent_table(by_hand(rows, [AgentCredit(e, "hand", c, 0.0) for e, c in enumerate(credits_)]))[1]
    assert hand.credit == pytest.approx(np.mean(credits_), abs=1e-9)
    assert hand.stderr == pytest.approx(np.std(credits_, ddof=1) / np.sqrt(len(credits_)), abs=1e-9)


def test_exact_index_of_each_method() -> None:
    assert exact_index("sharp", {"marginal": "loo"}) == "loo"
    assert exact_index("sharp", {"marginal": "shapley"}) == "shapley"
    assert exact_index("sharp", {}) == "loo"
    assert exact_index("difference", {}) == "loo"
    assert exact_index("no_method_of_ours", {}) is None
    assert exact_index("grpo", {}) is None


def test_mean_interval() -> None:
    # Wilson, n = 4, p = 1: centre (1 + .4802) / (1 + .9604) = .7551, half the same below 1
    assert mean_interval([1, 1, 1, 1]) == pytest.approx((1.0, 0.5101, 1.0), abs=1e-4)
    # Student: mean 2, sd 1, n 3, t = 4.3027: half 4.3027 / sqrt 3 = 2.4841
    assert mean_interval([1, 2, 3]) == pytest.approx((2.0, -0.4841, 4.4841), abs=1e-4)
    assert np.isnan(mean_interval([0.5])[1])


# -- facts ------------------------------------------------------------------------------------------------------------


def test_summary_counts_ends_and_what_is_left_out() -> None:
    rows = rows_of(
        [
            episode("a", [("x", "hi"), ("y", "")], 1.0),
            episode("b", [("x", "hi")], 0.0, end="truncated"),
            episode("c", [("x", "hi")], None, end="failed:tool", error="boom"),
        ]
    )
    facts = summary(rows)
    assert (facts.episodes, facts.scored, facts.turns, facts.reward[0]) == (3, 2, 4, 0.5)
    assert facts.ends == {"done": 1, "truncated": 1, "failed:tool": 1}
    assert facts.left_out == {"empty": 1, "failed:tool": 1}
    assert facts.errors == {"c": "boom"}


def test_messages_count_shared_turns_once() -> None:
    shared = {"id": "q", "agent": "x", "text": "hi", "to": ["y"]}
    rows = rows_of(
        [
            episode_from_json({"id": name, "task": "t", "reward": 0, "turns": [shared, {"agent": "y", "text": name}]})
            for name in ("a", "b")
        ]
    )
    assert messages(rows) == {("x", "y"): 1}


def test_disagreement_of_redundant_and_of_joint_agents() -> None:
    (spare,) = disagreements({"a": 0.0, "b": 0.0}, {"a": 0.5, "b": 0.5}, ("sharp", "shapley"))
    assert spare.startswith("sharp gives a and b about 0 where shapley gives 0.500 and 0.500: leave-one-out asks")
    (joint,) = disagreements({"a": 1.0, "b": 1.0}, {"a": 0.5, "b": 0.5}, ("difference", "exact Shapley"))
    assert "they need each other" in joint
    assert disagreements({"a": 0.5}, {"a": 0.5}, ("sharp", "shapley")) == []
    assert disagreements({}, {}, ("sharp", "shapley")) == []


# -- learning share ---------------------------------------------------------------------------------------------------


def short_success_long_failure() -> Rows:
    return rows_of([episode("a", [("x", "yes")], 1.0), episode("b", [("x", f"{i}") for i in range(9)], 0.0)])


def test_learning_share_and_long_failures_under_grpo() -> None:
    shares = learning_share(credit(short_success_long_failure(), "grpo"))
    # advantages ±1 by trajectory: one row of +1, nine of −1
    assert [(s.length, s.trajectories) for s in shares] == [("1", 1), ("9–16", 1)]
    assert [s.learning for s in shares] == pytest.approx([0.1, 0.9])
    assert [s.lowered for s in shares] == pytest.approx([0.0, 0.9])
    (warning,) = long_failures(shares)
    assert "long failures dominate what x learns: 90%" in warning


def test_no_warning_where_rows_or_trajectories_are_balanced() -> None:
    for preset in ("paper", "balanced"):
        assert long_failures(learning_share(credit(short_success_long_failure(), "dr_mas", preset))) == []


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 1)), min_size=2, max_size=6))
def test_learning_shares_of_an_agent_sum_to_one(played: list[tuple[int, int]]) -> None:
    rows = rows_of([episode(f"e{i}", [("x", "m")] * n, float(r)) for i, (n, r) in enumerate(played)])
    shares = learning_share(credit(rows, "grpo"))
    assert not shares or sum(s.learning for s in shares) == pytest.approx(1.0)


# -- pictures ---------------------------------------------------------------------------------------------------------


def test_bars_stand_on_zero_and_go_both_ways() -> None:
    rows = two(1, 1)
    agents = [AgentCredit(e, name, c, 0.0) for e in (0, 1) for name, c in (("boss", -1.0), ("hand", 3.0))]
    table = agent_table(by_hand(rows, agents))
    scale = scale_of([table], [3.0])
    minus, plus = (bar(row, 3.0, scale) for row in table)
    # from −1 to 3: zero at 25 %
    assert (minus.zero, minus.left, minus.width) == pytest.approx((25, 0, 25))
    assert (plus.left, plus.width, plus.mark) == pytest.approx((25, 75, 100))


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 9), st.sampled_from(["star", "line", "alone"]))
def test_the_graph_fits_its_frame(n: int, shape: str) -> None:
    names = [f"a{i}" for i in range(n)]
    edges = {"star": [("a0", b) for b in names[1:]], "line": list(pairwise(names)), "alone": []}
    graph = team_graph(names, ["a0"], edges[shape], {}, dict.fromkeys(names, 1.0))
    assert all(0 <= node.x <= graph.width and 0 <= node.y <= graph.height for node in graph.nodes)
    assert len({(round(node.x), round(node.y)) for node in graph.nodes}) == n
    assert len(graph.edges) == len(edges[shape])


def test_curves_share_a_chart_by_agent_and_break_where_unknown() -> None:
    metrics: list[Mapping[str, Any]] = [
        {"step": 0, "reward": 0.0, "credit": {"x": 0.0, "y": 1.0}, "failed": 0},
        {"step": 1, "reward": None, "credit": {"x": 1.0, "y": 0.0}, "failed": 0, "warnings": ["w"]},
        {"step": 2, "reward": 1.0, "credit": {"x": 1.0, "y": 0.0}, "failed": 0},
    ]
    reward, shared, failed = curves(metrics, ("x", "y"))
    assert (reward.title, reward.traces[0].path) == ("reward", "M0.0 120.0h0M320.0 0.0h0")
    assert (shared.title, [trace.label for trace in shared.traces]) == ("credit", ["x", "y"])
    assert shared.traces[0].path == "M0.0 120.0h0L160.0 0.0L320.0 0.0"
    assert failed.level
    assert not failed.main
    plain = [{"step": n, "staleness": n} for n in range(2)]
    assert [curve.main for curve in curves(plain, ())] == [False]
    assert [curve.main for curve in curves([{**plain[0], "hand_over": {"a": {"canary": 0.0}}}, plain[1]], ())] == [
        True,
        False,
    ]


# -- transcripts ------------------------------------------------------------------------------------------------------


def test_the_episode_with_the_widest_credit_comes_first() -> None:
    rows = two(1, 1, 0)
    columns = {"shapley": by_hand(rows, (), credit=np.array([0, 0, -1, 1, 0, 0.5]))}
    first, *others = transcripts(rows, columns)
    assert (first.id, first.why) == ("e1", "credit differs most between its turns")
    assert [mark.credit for line in first.lines for mark in line.marks] == [-1, 1]
    assert {t.id for t in others} == {"e0", "e2"}


def test_long_silent_and_invalid_turns_are_marked() -> None:
    turns = [
        {"agent": "x", "text": "a" * (FOLD + 1), "finish": "length"},
        {"agent": "y", "text": "", "null": True},
        {"agent": "x", "text": "?", "valid": False, "to": []},
    ]
    rows = rows_of([episode_from_json({"id": "a", "task": "t", "reward": 1, "turns": turns})])
    lines = transcripts(rows, {})[0].lines
    assert [line.folded for line in lines] == [True, False, False]
    assert [line.badges for line in lines] == [("stopped: length",), ("silenced",), ("invalid",)]


def test_a_method_with_episodes_of_its_own_marks_no_turn_of_others() -> None:
    other = rows_of([episode("e0", [("boss", "something else", ["hand"])], 1.0)])
    assert all(not line.marks for t in transcripts(two(1, 0), {"c3": by_hand(other, ())}) for line in t.lines)


# -- the report -------------------------------------------------------------------------------------------------------


def measured_report() -> Report:
    """Two redundant helpers: leave-one-out 0, 0 and Shapley ½, ½, from recorded counterfactuals."""
    outcomes = [(("a",), 1.0), (("b",), 1.0), (("a", "b"), 0.0)]
    team = {"orchestrator": "boss", "agents": {"boss": {}, "a": {}, "b": {}}, "edges": [["boss", "a"], ["boss", "b"]]}
    turns = [
        ("boss", "@a @b go", ["a", "b"]),
        ("a", "help", ["boss"]),
        ("b", "help", ["boss"]),
        ("boss", "1", ["user"]),
    ]
    known = [{"silenced": list(who), "reward": reward} for who, reward in outcomes]
    rows = rows_of([episode(f"e{i}", turns, 1.0, team=team, counterfactuals=known) for i in range(2)])
    results = [result(name, credit(rows, name), cost={"replays": 0}) for name in ("grpo", "sharp", "shapley")]
    failed = result("c3", None, error="no context holds two turns")
    exact = {"shapley": {"a": 0.5, "b": 0.5}, "loo": {"a": 0.0, "b": 0.0}}
    return Report("who helped?", (*results, failed), rows, exact, ({"step": 0, "reward": 1.0},), ("a note",))


def test_text_shows_credit_beside_the_truth_and_says_why_methods_differ() -> None:
    console = Console(width=160, color_system=None)
    with console.capture() as seen:
        console.print(measured_report().text())
    text = seen.get()
    lines = {line.split("  ")[0].strip(): line.split() for line in text.splitlines() if line.strip()}
    assert lines["shapley"][2:] == ["0.500", "±0.000", "0.500", "±0.000"]
    assert lines["exact Shapley"][2:] == ["—", "0.500", "0.500"]
    assert "boss —: always present (shapley)" in text
    assert "grpo: same reward for everyone" in text
    assert "sharp gives a and b about 0 where shapley gives 0.500 and 0.500" in text.replace("\n", " ")
    assert "c3: could not run: no context holds two turns" in text


def test_json_has_everything_and_no_nan() -> None:
    data = json.loads(json.dumps(measured_report().to_json(), allow_nan=False))
    by_name = {method["name"]: method for method in data["methods"]}
    assert [row["credit"] for row in by_name["shapley"]["agents"]] == [None, 0.5, 0.5]
    assert by_name["grpo"]["broadcast"]
    assert by_name["sharp"]["index"] == "loo"
    assert by_name["c3"]["error"] == "no context holds two turns"
    assert data["summary"]["reward"][0] == 1.0


def test_page_holds_every_part_and_asks_for_nothing() -> None:
    html = measured_report().html()
    for part in ("Credit per agent", "Methods", "Training", "Team", "Episodes to read", "Cost", "a note", "2602.08335"):
        assert part in html
    assert "<script" not in html
    assert "http:" not in html
    assert "https:" not in html


def test_hostile_text_is_inert_everywhere() -> None:
    evil = '"><script>alert(1)</script>'
    rows = rows_of([episode(evil, [(evil, evil, [evil])], 1.0, env=evil, end="done")])
    report = Report(evil, (result("grpo", credit(rows, "grpo"), settings={evil: evil}),), rows, {evil: {evil: 1.0}})
    assert "<script" not in report.html()


def test_twins_are_told_apart_by_what_differs() -> None:
    rows = two(1, 0)
    first, second = (
        result("sharp", by_hand(rows, ()), settings={"marginal": m, "alpha": 0.9}) for m in ("loo", "shapley")
    )
    assert list(Report("t", (first, second), rows, None).labelled) == [
        "sharp (marginal=loo)",
        "sharp (marginal=shapley)",
    ]


def test_a_method_with_other_agents_gets_columns_of_its_own() -> None:
    other = rows_of([episode("z", [("stranger", "hi")], 1.0)])
    report = Report("t", (result("grpo", credit(other, "grpo")),), two(1, 0), None)
    assert report.agents == ("boss", "hand", "stranger")
    assert "stranger" in report.html()


def test_a_report_without_methods_or_turns_is_still_a_page() -> None:
    rows = rows_of([episode("a", [], 1.0)])
    assert "Mean reward" in Report("bare", (), rows, None).html()


def test_every_method_of_the_record_renders() -> None:
    rows = two(1, 0, 1, 1)
    results = []
    for name in METHODS:
        try:
            results.append(result(name, credit(rows, name)))
        except UserError as error:
            results.append(result(name, None, error=str(error)))
    report = Report("all", tuple(results), rows, None)
    assert {"grpo", "dr_mas", "m_grpo"} <= set(report.measured)
    assert report.html()


@pytest.mark.parametrize("name", ["report.html", "report.json", "report.txt", "report.png", "report.svg"])
def test_save_writes_the_form_that_is_named(name: str, tmp_path: Path) -> None:
    if name.endswith((".png", ".svg")):
        pytest.importorskip("matplotlib")
    path = measured_report().save(tmp_path / name)
    beginning = {"html": b"<!doctype", "json": b"{", "txt": b"who helped?", "png": b"\x89PNG", "svg": b"<?xml"}
    assert path.read_bytes().startswith(beginning[path.suffix[1:]])


def test_save_refuses_an_unknown_form(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'report\.doc'; expected a name that ends in \.html"):
        measured_report().save(tmp_path / "report.doc")


def test_lone_surrogates_and_escape_codes_do_no_harm(tmp_path: Path) -> None:
    rows = rows_of([episode("a", [("x\x1b[31m", "half \ud83d", None), ("y", "[bold]b[/bold] 日本")], 1.0)])
    report = Report("odd [red]title", (result("grpo", credit(rows, "grpo")),), rows, None)
    assert "\\ud83d" in report.save(tmp_path / "r.html").read_text("utf-8")
    text = report.save(tmp_path / "r.txt").read_text("utf-8")
    assert "\x1b" not in text
    assert "odd [red]title" in text


def test_numbers_and_notes_are_written_plainly() -> None:
    assert [number(x) for x in (0.5, -1e-17, 2e-4, None, float("nan"))] == ["0.500", "0.000", "2.0e-04", "—", "—"]
    assert note({"x": {"1": 0.25}, "y": {"2": 0.75}}) == "x (1: 0.250), y (2: 0.750)"
    assert note({}) == ""


def test_a_very_long_episode_is_shown_in_part() -> None:
    turns = tuple(Turn("ab"[i % 2], f"say {i}", f"e/{i}") for i in range(2000))
    rows = rows_of([Episode("e", "t", turns, 1.0)])
    (shown,) = transcripts(rows, {})
    assert len(shown.lines) == 500
    assert shown.why.endswith("the first 500 of 2000 turns")


def test_turns_from_a_server_are_said_to_be_recorded_alone() -> None:
    played = episode("e0", [("boss", "1", ["user"])], 1.0)
    turn = replace(played.turns[0], sampling={"temperature": 1.0, "reproducible": False}, policy="helper@qwen3")
    rows = rows_of([replace(played, turns=(turn,))])
    (said,) = Report("served", (), rows).warnings
    assert said == ("episodes", "turns by helper come from a server: recorded, not reproducible")
