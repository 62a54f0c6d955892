import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from macredit.agents import make_policies
from macredit.env import TeamEnv
from macredit.envs import SCORERS, SolveVerify, find_scorer
from macredit.episode import Episode
from macredit.errors import UserError
from macredit.rollout import World, play, tasks_of

SMALL = {"min_num_statements": 3, "max_num_statements": 5}


def scripted(env: TeamEnv, n: int = 8, **styles: str) -> list[Episode]:
    """Episodes of different tasks; every agent is perfect unless told otherwise."""
    specs: dict[str, dict[str, Any]] = {
        name: {"kind": "scripted", "style": styles.get(name, "perfect")} for name in env.team.names
    }
    for spec in specs.values():
        if spec["style"] == "wrong":
            spec.update(style="noisy", skill=0.0)
    return play(World(env, make_policies(specs, env)), tasks_of(0, n))


def mean(episodes: list[Episode]) -> float:
    return sum(episode.reward or 0.0 for episode in episodes) / len(episodes)


def tasks_file(folder: Path, text: str) -> str:
    path = folder / "tasks.jsonl"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"settings": SMALL},
        {"dataset": "chain_sum"},
        {"dataset": "letter_counting"},
        {"solvers": 3, "settings": SMALL},
        {"told": "all"},
        {"roles": "plain"},
        {"solo": True},
    ],
)
def test_a_perfect_team_solves_everything(arguments: dict[str, Any]) -> None:
    episodes = scripted(SolveVerify(**arguments))
    assert {episode.end for episode in episodes} == {"done"}
    assert mean(episodes) == 1.0


def test_facts_are_dealt_out_and_the_question_goes_to_the_leads() -> None:
    env = SolveVerify(settings={"min_num_statements": 6, "max_num_statements": 6})
    env.reset(seed=0)
    shown = {}
    for _ in range(3):
        shown[env.agent_selection] = env.observe(env.agent_selection)["text"]
        env.step("hm")
    assert [text.count(".") for text in shown.values()] == [3, 2, 3]  # two facts each; the question's second sentence
    assert ["Question: Who" in text for text in shown.values()] == [True, False, True]
    assert shown["solver"].endswith("\nplanner: hm")
    told = SolveVerify(told="all")
    told.reset(seed=0)
    told.step("hm")
    assert "Question: Who" in told.observe("solver")["text"]


def test_without_talk_the_solver_does_not_know_the_question() -> None:
    assert mean(scripted(SolveVerify(settings=SMALL), planner="silent", verifier="silent")) == 0.0
    assert mean(scripted(SolveVerify(dataset="chain_sum"), planner="silent", verifier="silent")) == 0.0


def test_the_verifier_sends_a_wrong_answer_back() -> None:
    env = SolveVerify(dataset="chain_sum", loops=2)
    episodes = scripted(env, planner="wrong")
    assert mean(episodes) == 1.0
    assert [turn.agent for turn in episodes[0].turns] == ["planner", "solver", "verifier", "solver", "verifier"]
    assert episodes[0].turns[2].to == ("solver",)
    assert mean(scripted(SolveVerify(dataset="chain_sum", loops=1), planner="wrong")) == 0.0


def test_the_loops_run_out() -> None:
    env = SolveVerify(dataset="chain_sum", loops=3)
    env.reset(seed=0)
    turns = []
    while env.end is None:
        turns.append(env.agent_selection)
        env.step("reject" if env.agent_selection == "verifier" else "0")
    assert turns == ["planner", *["solver", "verifier"] * 3]
    env = SolveVerify(dataset="chain_sum", loops=1)
    env.reset(seed=0)
    for text in ("x", "y", "@solver reject"):
        env.step(text)
    assert not env.delivery.valid
    assert "No try is left" in env.observe("verifier")["text"]


def test_the_last_solver_output_is_the_answer_whoever_speaks_last() -> None:
    env = SolveVerify(dataset="chain_sum")
    env.reset(seed=0)
    for text in ("x", "It is simple.\nAnswer: " + env.gold(), "approve, but I would say 3"):
        env.step(text)
    assert env.end == "done"
    assert env.scores()[0] == 1.0


def test_without_a_mark_the_answer_is_the_first_line() -> None:
    env = SolveVerify(dataset="chain_sum")
    env.reset(seed=0)
    for text in ("x", f"\n{env.gold()}\nThat was easy.", "approve"):
        env.step(text)
    assert env.scores()[0] == 1.0


def test_a_silent_verifier_lets_the_answer_stand_and_a_silent_solver_gives_none() -> None:
    assert mean(scripted(SolveVerify(settings=SMALL, solvers=2), solver2="silent", verifier="silent")) < 1.0
    env = SolveVerify(dataset="chain_sum", solvers=2)
    env.reset(seed=0)
    env.step("x")
    env.step(env.gold())
    env.pass_turn()
    env.pass_turn()
    assert (env.end, env.scores()[0]) == ("done", 1.0)


def test_only_the_last_in_line_may_answer() -> None:
    env = SolveVerify()
    env.reset(seed=0)
    env.step("@user 42")
    assert not env.delivery.valid


def test_removed_roles_are_skipped() -> None:
    env = SolveVerify(dataset="chain_sum")
    env.reset(seed=0, options={"absent": ["verifier"]})
    env.step("x")
    env.step(env.gold())
    assert (env.end, env.scores()[0]) == ("done", 1.0)
    env.reset(seed=0, options={"absent": ["solver"]})
    env.step("x")
    assert env.agent_selection == "verifier"
    env.step("reject")
    assert (env.end, env.scores()[0]) == ("done", 0.0)


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [("reject", True), ("Rejected: no", True), ("approve", False), ("approve, do not reject", False), ("", False),
     ("I reject; approve later", True), ("unreject", False)],
)  # fmt: skip
def test_a_verdict_is_its_first_word_of_the_two(verdict: str, expected: bool) -> None:
    assert SolveVerify.rejects(verdict) is expected


def test_fumbles_are_wrong_in_the_right_form() -> None:
    env = SolveVerify(dataset="chain_sum")
    assert mean(scripted(env, solver="wrong", verifier="silent")) == 0.0
    turns = scripted(env, n=1, verifier="wrong")[0].turns
    assert turns[2].text == "reject"


def test_role_texts_carry_examples_only_when_asked() -> None:
    assert "--- assistant\nAnn" in SolveVerify().team["solver"].role
    assert "--- assistant" not in SolveVerify(roles="plain").team["solver"].role
    assert SolveVerify(solo=True).team.names == ("solver",)


# -- the user's own tasks -------------------------------------------------------------------------------------------

TASKS = """{"question": "Who sings?", "answer": "Ann", "facts": ["Ann sings.", "Bo hums.", "Cy claps."]}
{"question": "1 + 1?", "answer": 2, "scorer": "number"}
"""


def test_own_tasks_with_facts_and_scorers(tmp_path: Path) -> None:
    env = SolveVerify(data=tasks_file(tmp_path, TASKS))
    seen = set()
    for seed in range(8):
        env.reset(seed=seed)
        seen.add(env.gold())
        if env.gold() == "Ann":
            assert env.observe("planner")["text"] == "Facts: Ann sings.\nQuestion: Who sings?"
        right = {"Ann": "ann.", "2": "It is 2.0"}[env.gold()]
        for text in ("x", right, "approve"):
            env.step(text)
        assert env.scores()[0] == 1.0
    assert seen == {"Ann", "2"}


def test_own_scorer_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("own_scores")
    module.__dict__["length"] = lambda answer, task: len(answer) / len(task["answer"])
    monkeypatch.setitem(sys.modules, "own_scores", module)
    env = SolveVerify(data=tasks_file(tmp_path, '{"question": "q", "answer": "four"}'), scorer="own_scores:length")
    env.reset(seed=0)
    for text in ("x", "no", ""):
        env.step(text)
    assert env.scores()[0] == 0.5  # two letters of four


@pytest.mark.parametrize(
    ("scorer", "answer", "gold", "expected"),
    [
        ("exact", " Ann Lee. ", "ann  lee", 1.0),
        ("exact", "Ann Lee!", "Ann Lee", 0.0),
        ("contains", "I think Ann did it", "ann", 1.0),
        ("contains", "Hannah", "ann", 0.0),
        ("number", "1,000 or rather 1234.50", "1234.5", 1.0),
        ("number", "about 7", "8", 0.0),
        ("number", "none", "8", 0.0),
        ("choice", "It is (B)", "b", 1.0),
        ("choice", "B, no: C", "B", 0.0),
        ("choice", "", "B", 0.0),
    ],
)
def test_scorers(scorer: str, answer: str, gold: str, expected: float) -> None:
    assert SCORERS[scorer](answer, {"question": "", "answer": gold}) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dataset": "chain_sun"}, "unknown data set 'chain_sun'.*Did you mean 'chain_sum'"),
        ({"settings": {"min_terms": 2}}, "does not take the settings {'min_terms': 2}"),
        ({"dataset": "chain_sum", "settings": {"min_terms": 5, "max_terms": 2}}, "does not take the settings"),
        ({"solvers": 0}, "0 solvers and 3 loops"),
        ({"told": "nobody"}, "unknown choice 'nobody'"),
        ({"data": "/nowhere.jsonl"}, "/nowhere.jsonl: cannot be read"),
        ({"scorer": "exakt"}, "Did you mean 'exact'"),
        ({"scorer": "no_such_module:f"}, "cannot be loaded"),
    ],
)
def test_mistakes_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        SolveVerify(**arguments)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "is empty; expected one object with question, answer a line"),
        ("{", "line 1: not JSON"),
        ("[1]", "line 1: given '\\[1\\]', expected an object"),
        ('{"question": "q"}', "line 1, field 'answer': given None, expected a str"),
        ('{"question": "q", "answer": "a", "facts": "f"}', "'facts' is 'f'"),
        ('{"question": "q", "answer": "a", "scorer": "fuzzy"}', "unknown scorer 'fuzzy'"),
    ],
)
def test_bad_task_files_are_named(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        SolveVerify(data=tasks_file(tmp_path, line))


def test_no_expert_for_other_questions() -> None:
    with pytest.raises(UserError, match="no expert knows how to answer"):
        scripted(SolveVerify(dataset="spell_backward"), n=1)


def test_find_scorer_gives_the_named_one() -> None:
    assert find_scorer("exact") is SCORERS["exact"]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(UserError, match=r"pip install \"macredit\[train\]\""):
        SolveVerify()
