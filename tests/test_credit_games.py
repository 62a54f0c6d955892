"""Shapley and its kin over agents, turns, messages and links of episodes that are really replayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from macredit.agents import make_policy
from macredit.credit import Credits, credit
from macredit.envs import make_env
from macredit.errors import UserError
from macredit.measure import run_method
from macredit.rollout import World, play, tasks_of
from macredit.truth import truth
from macredit.units import Over
from macredit.whatif import WhatIf


def world(name: str, style: str = "perfect", skill: float = 0.8, **args: Any) -> World:
    env = make_env(name, **args)
    spec = {"kind": "scripted", "style": style, **({"skill": skill} if style == "noisy" else {})}
    return World(env, {agent: make_policy(spec, env=env) for agent in env.team.names})


def measured(
    here: World, method: str, episodes: int = 1, replicates: int = 1, players: Any = "specialists", **settings: Any
) -> Credits:
    whatif = WhatIf(play(here, tasks_of(0, episodes)), here, players=players, replicates=replicates)
    return credit(whatif.episodes, method, settings=settings, whatif=whatif)


def totals(found: Credits) -> dict[str, float | None]:
    return {one.agent: one.credit for one in found.agents if one.episode == 0}


@pytest.mark.parametrize(
    ("method", "settings", "expected"),
    [
        # glove: a and one of b, c earn 1 together
        ("shapley", {}, [2 / 3, 1 / 6, 1 / 6]),
        ("banzhaf", {}, [0.75, 0.25, 0.25]),
        # unions {a}, {b, c}: either union alone earns nothing, so ½ each; b and c share theirs
        ("owen", {"unions": "b+c"}, [0.5, 0.25, 0.25]),
        # every agent has a policy of its own, so no unions
        ("owen", {}, [2 / 3, 1 / 6, 1 / 6]),
        # a star around the planner, which is always present: all reach it
        ("myerson", {}, [2 / 3, 1 / 6, 1 / 6]),
        # what a says carries 1 with what b or c says; the planner's words matter to nobody
        ("shapley", {"over": "messages"}, [2 / 3, 1 / 6, 1 / 6]),
        ("banzhaf", {"over": "messages"}, [0.75, 0.25, 0.25]),
        ("shapley", {"over": "links"}, [2 / 3, 1 / 6, 1 / 6]),
    ],
)
def test_the_glove_game_at_every_grain(method: str, settings: dict[str, Any], expected: Sequence[float]) -> None:
    found = totals(measured(world("coalition_v0", preset="glove"), method, **settings))
    assert [found[name] for name in "abc"] == pytest.approx(list(expected))


def test_turns_are_credited_one_by_one() -> None:
    # relay of 3: three turns, all needed: 1/3 each; Banzhaf of an AND game of 3 is ¼
    here = world("relay_v0", length=3)
    np.testing.assert_allclose(measured(here, "shapley", over="turns").credit, 1 / 3)
    np.testing.assert_allclose(measured(here, "banzhaf", over="turns").credit, 1 / 4)
    np.testing.assert_allclose(measured(here, "shapley", over="messages").credit, 1 / 3)


def test_the_turns_of_one_agent_bargain_as_a_union() -> None:
    found = measured(world("coalition_v0", preset="and"), "owen", over="turns")
    # unions: planner (3 turns, two of them needed), a, b; all three are needed: 1/3 each
    assert totals(found) == pytest.approx({"planner": 1 / 3, "a": 1 / 3, "b": 1 / 3})


def test_a_line_asks_about_its_connected_coalitions_alone() -> None:
    here = world("relay_v0", length=5)
    whatif = WhatIf(play(here, tasks_of(0, 1)), here)
    found = credit(whatif.episodes, "myerson", whatif=whatif)
    # a1 … a4 behind a0: ∅, a1, a1a2, a1a2a3 and all four; the last is the original
    assert whatif.ledger.replays == 4
    assert [totals(found)[f"a{i}"] for i in range(1, 5)] == pytest.approx([0.25] * 4)


def test_links_of_a_line_and_of_a_star() -> None:
    line = measured(world("relay_v0", length=3), "position")
    assert [(link["from"], link["to"]) for link in line.links] == [("a0", "a1"), ("a1", "a2")]
    assert [link["credit"] for link in line.links] == pytest.approx([0.5, 0.5])
    # an agent gets half of each of its links
    assert totals(line) == pytest.approx({"a0": 0.25, "a1": 0.5, "a2": 0.25})
    star = measured(world("coalition_v0", preset="additive"), "position")
    assert [link["credit"] for link in star.links] == pytest.approx([0.5, 0.3, 0.2])


def test_credit_adds_up_to_what_was_earned() -> None:
    here = world("coalition_v0", "noisy", preset="airport", noise=0.5)
    kinds: tuple[Over, ...] = ("agents", "turns", "messages", "links")
    for over in kinds:
        whatif = WhatIf(play(here, tasks_of(0, 3)), here)
        found = credit(whatif.episodes, "shapley", settings={"over": over}, whatif=whatif)
        everyone = frozenset(whatif.units_of(1, over))
        whole, nothing = whatif.ask([(1, frozenset()), (1, everyone)])
        assert sum(one.credit or 0.0 for one in found.agents if one.episode == 1) == pytest.approx(
            whole.mean - nothing.mean
        )


def test_redundant_agents_interact_below_zero_and_complements_above() -> None:
    found = measured(world("coalition_v0", preset="glove"), "shapley").interactions
    # I_ab = ½ Σ_T [v(T∪ab) − v(T∪a) − v(T∪b) + v(T)] = ½ (1 + 0); I_bc = ½ (0 − 1)
    assert {tuple(pair["agents"]): pair["value"] for pair in found} == pytest.approx(
        {("b", "a"): 0.5, ("c", "a"): 0.5, ("c", "b"): -0.5}
    )


def test_noise_of_the_score_cancels_in_every_replicate() -> None:
    here = world("coalition_v0", preset="additive", noise=1.0)
    found = measured(here, "difference", replicates=4)
    assert [totals(found)[name] for name in "abc"] == pytest.approx([0.5, 0.3, 0.2])
    assert [one.stderr for one in found.agents if one.agent in "abc"] == pytest.approx([0.0] * 3, abs=1e-9)
    shares = measured(here, "shapley", replicates=4)
    assert [totals(shares)[name] for name in "abc"] == pytest.approx([0.5, 0.3, 0.2])


def test_replicates_of_noisy_agents_carry_a_standard_error() -> None:
    # without a, the planner asks b and c anew in every replicate but the first, and they help half the time
    found = measured(world("coalition_v0", "noisy", skill=0.5, preset="additive"), "shapley", 4, replicates=8)
    assert max(one.stderr or 0.0 for one in found.agents) > 0.01


def test_replicates_travel_in_the_record() -> None:
    here = world("coalition_v0", preset="or", noise=1.0)
    whatif = WhatIf(play(here, tasks_of(0, 2)), here, replicates=3)
    first = credit(whatif.episodes, "shapley", whatif=whatif)
    again = credit(whatif.recorded(), "shapley")
    np.testing.assert_array_equal(first.credit, again.credit)
    np.testing.assert_array_equal(first.stderr, again.stderr)


def test_a_budget_estimates_what_is_too_large_to_ask() -> None:
    here = world("coalition_v0", "noisy", preset="additive", n=8)
    whatif = WhatIf(play(here, tasks_of(0, 4)), here)
    exact = credit(whatif.episodes, "shapley", whatif=WhatIf(whatif.episodes, here))
    found = run_method("shapley", whatif, settings={"budget": 40})
    assert found.credits is not None
    # 40 evaluations an episode, the original among them
    assert whatif.ledger.replays + whatif.ledger.replays_saved <= 4 * 40
    assert whatif.ledger.replays <= 4 * 39
    np.testing.assert_allclose(found.credits.credit, exact.credit, atol=1e-6)  # additive games are found exactly
    assert "gaussian" in found.credits.notes["estimated"]
    same = credit(whatif.episodes, "shapley", settings={"budget": 40}, whatif=WhatIf(whatif.episodes, here))
    np.testing.assert_array_equal(found.credits.credit, same.credit)


def test_a_budget_that_covers_everything_is_exact() -> None:
    found = measured(world("coalition_v0", preset="glove"), "shapley", budget=8)
    assert "estimated" not in found.notes
    assert totals(found)["a"] == pytest.approx(2 / 3)


def test_a_budget_too_small_names_the_smallest() -> None:
    with pytest.raises(UserError, match=r"the budget is 2 evaluations; .* needs at least"):
        measured(world("coalition_v0", preset="additive", n=8), "shapley", budget=2)


@pytest.mark.slow
def test_a_noisy_team_of_twelve_gets_intervals_that_hold() -> None:
    here = world("coalition_v0", "noisy", preset="majority", n=12, noise=0.2)
    exact = truth(here).exact["shapley"]
    whatif = WhatIf(play(here, tasks_of(0, 24)), here)
    found = run_method("shapley", whatif, settings={"budget": 64})
    assert whatif.ledger.replays <= 24 * 64
    rows = [row for row in found.table if row.agent in exact]
    z = [(row.credit - exact[row.agent]) / row.stderr for row in rows if row.credit is not None and row.stderr]
    # twelve estimates from the same 24 episodes: none may be far off, most within two standard errors
    assert len(z) == 12
    assert max(map(abs, z)) < 4
    assert sum(abs(value) < 2 for value in z) >= 9


def test_masking_keeps_what_the_others_said() -> None:
    star = measured(world("coalition_v0", preset="glove"), "sharp", counterfactual="mask_only")
    assert totals(star) == pytest.approx({"planner": 1 / 3, "a": 1.0, "b": 0.0, "c": 0.0})
    # in a line the last one has said the word already, whoever falls silent before it
    line = measured(world("relay_v0", length=3), "sharp", counterfactual="mask_only")
    assert [totals(line)[name] for name in ("a1", "a2")] == [0.0, 1.0]
    with pytest.raises(UserError, match="needs an environment"):
        credit(play(world("relay_v0"), tasks_of(0, 1)), "sharp", settings={"counterfactual": "mask_only"})


def test_unions_name_agents_of_the_team() -> None:
    with pytest.raises(UserError, match="unknown agent 'z'"):
        measured(world("coalition_v0", preset="glove"), "owen", unions="a+z")
    with pytest.raises(UserError, match="agent 'a' stands 2 times in unions"):
        measured(world("coalition_v0", preset="glove"), "owen", unions="a+b,a+c")


@pytest.mark.parametrize("method", ["shapley", "banzhaf", "owen", "myerson", "position"])
def test_a_team_without_players(method: str) -> None:
    found = measured(world("relay_v0", length=1), method)
    (alone,) = found.agents
    # nobody is a player; only position values a link game, in which the orchestrator has no link
    assert (alone.agent, alone.credit) == ("a0", 0.0 if method == "position" else None)
    assert found.links == ()


@pytest.mark.slow
def test_thirty_one_players_are_estimated_or_refused() -> None:
    here = world("relay_v0", length=32)
    assert sum(totals(measured(here, "shapley", budget=80))[f"a{i}"] or 0.0 for i in range(1, 32)) == pytest.approx(1.0)
    with pytest.raises(UserError, match=r"31 players, which needs 2147483648 coalitions.*--set budget=N"):
        measured(here, "shapley")


def test_replicates_count_in_a_budget() -> None:
    here = world("coalition_v0", "noisy", preset="additive", n=4)
    for budget in (20, 31, 63, 64):
        whatif = WhatIf(play(here, tasks_of(0, 2)), here, replicates=4)
        credit(whatif.episodes, "shapley", settings={"budget": budget}, whatif=whatif)
        assert whatif.ledger.replays <= 2 * budget  # 2^4 coalitions · 4 replicates are all of 64
    with pytest.raises(UserError, match=r"'budget' of shapley is -1; expected 0 to 1048576"):
        measured(here, "shapley", budget=-1)


def test_replicates_are_paired_by_their_number() -> None:
    here = world("coalition_v0", "noisy", skill=0.5, preset="additive")
    whatif = WhatIf(play(here, tasks_of(0, 3)), here, replicates=4)
    first = credit(whatif.episodes, "shapley", whatif=whatif)
    shuffled = [replace(e, counterfactuals=e.counterfactuals[::-1]) for e in whatif.recorded()]
    np.testing.assert_array_equal(first.stderr, credit(shuffled, "shapley").stderr)


def test_settings_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(UserError, match="mask_only goes with marginal loo"):
        measured(world("relay_v0"), "sharp", counterfactual="mask_only", marginal="shapley")
    with pytest.raises(UserError, match="leave one of the two out"):
        measured(world("relay_v0"), "owen", over="turns", unions="a1+a2")


def test_the_error_of_an_agent_s_position_counts_its_own_worth() -> None:
    found = measured(world("coalition_v0", "noisy", skill=0.5, preset="additive"), "position", 2, 6, players="all")
    links = {(link["episode"], link["from"], link["to"]): link for link in found.links}
    assert all(link["stderr"] is not None for link in links.values())
    assert all(one.stderr is not None for one in found.agents)


def test_a_player_that_is_never_asked_is_free_and_gets_nothing() -> None:
    here = world("coalition_v0", preset="never_invoked")
    whatif = WhatIf(play(here, tasks_of(0, 1)), here)
    found = credit(whatif.episodes, "banzhaf", whatif=whatif)
    assert totals(found)["c"] == 0.0
    assert (whatif.ledger.replays, whatif.ledger.replays_saved) == (3, 5)  # a, b and both; c changes nothing


def test_a_reply_that_nobody_hears_is_still_made_once() -> None:
    here = world("relay_v0", length=3)
    whatif = WhatIf(play(here, tasks_of(0, 1)), here)
    (unit, *_) = whatif.units_of(0, "messages")
    (replay,) = whatif.replay([whatif.silence(0, [unit])])
    assert [turn.text for turn in replay.turns] == [whatif.episodes[0].turns[0].text, "", ""]
    assert replay.reward == 0.0
