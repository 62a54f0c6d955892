import json
import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from macredit.agents import make_policies
from macredit.envs import SearchQA
from macredit.episode import Episode
from macredit.errors import UserError
from macredit.rollout import World, play, tasks_of


def scripted(env: SearchQA, n: int = 8, silent: str = "") -> list[Episode]:
    specs = {name: {"kind": "scripted", "style": "silent" if name == silent else "perfect"} for name in env.team.names}
    return play(World(env, make_policies(specs, env)), tasks_of(0, n))


def started(*texts: str | None, **arguments: Any) -> SearchQA:
    env = SearchQA(**arguments)
    env.reset(seed=0)
    for text in texts:
        if text is None:
            env.pass_turn()
        else:
            env.step(text)
    return env


@pytest.mark.parametrize("hops", [1, 2, 3, 4])
def test_a_perfect_team_finds_the_answer(hops: int) -> None:
    episodes = scripted(SearchQA(hops=hops, size=16))
    assert [episode.reward for episode in episodes] == [1.0] * 8
    assert {episode.end for episode in episodes} == {"done"}
    # per hop: router, searcher, the searcher with its results; then router and answerer
    assert [len(episode.turns) for episode in episodes] == [3 * hops + 2] * 8


@pytest.mark.parametrize("silent", ["router", "searcher", "answerer"])
def test_everyone_is_needed(silent: str) -> None:
    episodes = scripted(SearchQA(), silent=silent)
    assert [episode.reward for episode in episodes] == [0.0] * 8
    assert {episode.end for episode in episodes} == {"done"}


@pytest.mark.parametrize("hops", [1, 2, 3, 4])
def test_gold_facts_lead_from_the_question_to_the_answer(hops: int) -> None:
    env = started(hops=hops)
    facts = env.gold_facts()
    assert len(facts) == hops
    assert facts[0].split()[0] in env.observe("router")["text"]
    assert facts[-1].endswith(f" {env.gold()}.")
    for fact, following in pairwise(facts):
        assert following.startswith(fact.split()[-1].removesuffix("."))
    assert set(facts) <= set(pickle.loads(env.snapshot().board).state.documents)


def test_the_router_word_decides() -> None:
    assert started("search Ada").agent_selection == "searcher"
    assert started("Please answer, then search").agent_selection == "answerer"
    assert started("whatever").agent_selection == "searcher"
    assert started("@answerer search").agent_selection == "answerer"
    assert started(*["search", "@router nothing"] * 4, "search").agent_selection == "answerer"


def test_no_more_searches_than_allowed() -> None:
    env = started("search", "@router no", "@searcher again", searches=1)
    assert not env.delivery.valid
    assert "No search is left" in env.observe("router")["text"]


def test_the_tool_finds_documents() -> None:
    env = started("search x")
    fact = env.gold_facts()[0]
    env.step(fact.removesuffix("."))  # unaddressed: a searcher without results searches
    assert env.delivery.to == ("search",)
    shown = env.observe("searcher")["text"]
    assert shown.startswith(f"search: {fact}")
    assert shown.count(".") == 3
    env.step("found it")
    assert env.delivery.to == ("router",)
    assert env.observe("router")["text"] == "searcher: found it"


@pytest.mark.parametrize("call", ["@search", "@search ?!", '{"name": "search", "arguments": {"q": 1}}'])
def test_a_call_without_a_query_is_invalid(call: str) -> None:
    env = started("search", call)
    assert not env.delivery.valid
    assert env.observe("searcher")["text"] == "error: The call holds no query: write @search and some words."


def test_json_calls_and_words_that_stand_nowhere() -> None:
    env = started("search")
    fact = env.gold_facts()[0]
    env.step(f"<tool_call>{json.dumps({'name': 'search', 'arguments': {'query': fact}})}</tool_call>")
    assert fact in env.observe("searcher")["text"]
    env.step("@search qwertz")
    assert env.observe("searcher")["text"] == "search: Nothing found."


def test_removed_roles_are_skipped() -> None:
    env = SearchQA()
    env.reset(seed=0, options={"absent": ["searcher"]})
    env.step("search")
    assert env.agent_selection == "answerer"
    env.reset(seed=0, options={"absent": ["answerer"]})
    env.step("answer")
    assert env.end == "done"


def files(folder: Path) -> dict[str, Any]:
    documents, data = folder / "docs.jsonl", folder / "data.jsonl"
    documents.write_text('{"text": "The sky is blue."}\n{"text": "Grass is green."}\n', encoding="utf-8")
    data.write_text('{"question": "Grass?", "answer": "green", "facts": ["Grass is green."], "scorer": "contains"}')
    return {"documents": str(documents), "data": str(data)}


def test_own_documents(tmp_path: Path) -> None:
    env = started("search", "@search sky", **files(tmp_path))
    assert env.observe("searcher")["text"] == "search: The sky is blue."
    assert env.gold_facts() == ("Grass is green.",)
    for text in ("blue", "answer", "It is green, I think"):
        env.step(text)
    assert (env.end, env.scores()[0]) == ("done", 1.0)
    with pytest.raises(UserError, match="no expert knows this kind of question"):
        scripted(SearchQA(**files(tmp_path)), n=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hops": 5}, "hops is 5; expected 1 to 4"),
        ({"size": 1}, "size is 1; expected 2 to 16"),
        ({"top": 0}, "top is 0"),
        ({"documents": "x"}, "belong together"),
    ],
)
def test_mistakes_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        SearchQA(**arguments)
