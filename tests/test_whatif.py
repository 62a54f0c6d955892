"""Counterfactual replays: what they find, and which calls they do not make."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from macredit.agents import Scripted, Table, make_policy
from macredit.collect import tree
from macredit.env import Message, TeamEnv
from macredit.envs import Relay, make_env
from macredit.episode import Counterfactual, Episode, Turn, episode_from_json, episode_line
from macredit.errors import UserError
from macredit.policy import BatchPolicy, Request, Said
from macredit.rollout import World, play, tasks_of
from macredit.seeds import Key
from macredit.team import Team
from macredit.whatif import WhatIf

CASES: Mapping[str, Callable[[], World]] = {
    "relay noisy": lambda: scripted("relay_v0", {}, "noisy"),
    "coalition noisy": lambda: scripted("coalition_v0", {"preset": "glove", "noise": 0.3}, "noisy"),
    "coalition table": lambda: coalition_tables(),
    "relay tiny": lambda: tiny(),
}


def scripted(env: str, args: dict[str, Any], style: Any) -> World:
    made = make_env(env, **args)
    return World(made, {a: make_policy({"kind": "scripted", "style": style}, env=made) for a in made.team.names})


def coalition_tables() -> World:
    env = make_env("coalition_v0", preset="majority")
    planner = make_policy({"kind": "scripted", "style": "perfect"}, env=env)
    return World(env, {"planner": planner, **{a: Table(["help", "pass"]) for a in env.team.specialists}})


def tiny() -> World:
    pytest.importorskip("torch")
    spec = {"kind": "hf", "model": "tiny", "max_tokens": 6}
    return World(Relay(2), {a: make_policy(spec, name=a) for a in ("a0", "a1")})


def what(episode: Episode) -> list[tuple[str, str, Any, Any]]:
    return [(t.agent, t.text, t.token_ids, t.to) for t in episode.turns]


@pytest.mark.parametrize(("case", "reuse"), [(c, r) for c in CASES for r in (True, False) if r or c != "relay tiny"])
def test_playing_on_from_any_turn_reproduces_the_episode(case: str, reuse: bool) -> None:
    """Without reuse only scripted and table policies must: a language model answers other batches otherwise."""
    world = CASES[case]()
    said = play(world, tasks_of(3, 1, 2))
    whatif = WhatIf(said, world, reuse=reuse)
    for e, episode in enumerate(said):
        plans = [whatif._plan(e, f"again-{t}", t) for t in range(len(episode.turns) + 1)]
        for again in whatif.replay(plans):
            assert what(again) == what(episode)
            assert again.reward == episode.reward
    assert (whatif.ledger.calls == 0) == reuse


@pytest.mark.parametrize("case", CASES)
def test_an_intervention_that_changes_nothing_has_credit_exactly_0(case: str) -> None:
    world = CASES[case]()
    said = play(world, tasks_of(0, 1, 3))
    whatif = WhatIf(said, world)
    plans = [whatif.say_instead(e, t, turn.text) for e, x in enumerate(said) for t, turn in enumerate(x.turns)]
    owners = [x for x in said for _ in x.turns]
    for episode, again in zip(owners, whatif.replay(plans), strict=True):
        assert (again.reward, what(again)) == (episode.reward, what(episode))
    assert whatif.ledger.calls == 0


def test_a_record_read_from_a_file_replays_without_a_call() -> None:
    world = CASES["coalition table"]()
    said = [episode_from_json(json.loads(episode_line(e))) for e in play(world, tasks_of(0, 2, 2))]
    whatif = WhatIf(said, CASES["coalition table"]())
    assert what(whatif.replay([whatif.say_instead(1, 0, said[1].turns[0].text)])[0]) == what(said[1])
    assert whatif.ledger.calls == 0


def test_silence_starts_at_the_first_turn_that_differs() -> None:
    world = scripted("relay_v0", {"length": 4}, "perfect")
    whatif = WhatIf(play(world, tasks_of(0, 1)), world)
    assert [o.mean for o in whatif.ask([(0, frozenset({"a2"}))])] == [0.0]
    # a0 and a1 keep what they said; a2 is silent; only a3 hears something else and is asked
    assert (whatif.ledger.calls, whatif.ledger.calls_reused, whatif.ledger.replays) == (1, 0, 1)


def test_leaving_out_an_agent_that_was_never_asked_is_free_and_exact() -> None:
    world = scripted("coalition_v0", {"preset": "never_invoked"}, "perfect")
    said = play(world, tasks_of(0, 1, 2))
    assert "c" not in {t.agent for e in said for t in e.turns}
    whatif = WhatIf(said, world)
    outcome = whatif.ask([(0, frozenset({"c"}))])[0]
    assert (outcome.mean, outcome.exact, outcome.stderr) == (said[0].reward, True, 0.0)
    assert (whatif.ledger.calls, whatif.ledger.resets, whatif.ledger.replays) == (0, 0, 0)


class Fallback(TeamEnv):
    """The planner asks a; only if a is silent, it asks b. Either one's word earns 1."""

    name = "fallback_v0"

    def __init__(self) -> None:
        super().__init__(Team.orchestrated("planner", ["a", "b"]))

    def begin(self, rng: np.random.Generator) -> str:
        return ""

    def prompt(self, state: str, agent: str, unread: Sequence[Message]) -> str:
        return "|".join(f"{m.sender}:{m.text}" for m in unread)

    def hear(self, state: str, message: Message) -> str:
        return message.text if "user" in message.to else state

    def score(self, state: str) -> float:
        return float(state == "word")

    @staticmethod
    def expert(request: Request) -> str:
        if request.agent != "planner":
            return "@planner word"
        sender, _, text = request.prompt.partition(":")
        return "@a ?" if not sender else f"@user {text}" if text else "@b ?" if sender == "a" else "@user"


def fallback() -> World:
    env = Fallback()
    return World(env, {a: Scripted("perfect", expert=env.expert) for a in env.team.names})


def test_coalitions_that_agree_on_every_agent_asked_share_an_outcome() -> None:
    world = fallback()
    whatif = WhatIf(play(world, tasks_of(0, 1)), world)
    coalitions = [frozenset[str](), frozenset("a"), frozenset("b"), frozenset("ab")]
    assert [o.mean for o in whatif.ask([(0, c) for c in coalitions])] == [1.0, 1.0, 1.0, 0.0]
    # b was never asked: {b} is the original. {a} is played and asks b, so {a, b} is played too.
    assert (whatif.ledger.replays, whatif.ledger.replays_saved) == (2, 2)


def brute_calls(world: World, questions: Sequence[tuple[int, frozenset[str]]], said: Sequence[Episode]) -> int:
    """Distinct (prompt, key) pairs that are not on record, over naive replays from the start."""
    seen: set[str] = set()

    class Notes(BatchPolicy):
        def __init__(self, inner: BatchPolicy) -> None:
            super().__init__("", inner.version, inner.sampling)
            self.inner = inner

        def say(self, batch: Sequence[Request]) -> Sequence[Said]:
            seen.update(f"{r.agent}{r.fingerprint()}" for r in batch)
            return self.inner.say(batch)

    noted = World(world.env, {n: Notes(p) for n, p in world.policies.items()})  # type: ignore[arg-type]
    whatif = WhatIf(said, world)
    play(noted, [replace(whatif.silence(e, c), start=None, id=f"o{i}", silenced=frozenset())
                 for i, (e, c) in enumerate(questions)])  # fmt: skip
    recorded = set(seen)
    play(noted, [replace(whatif.silence(e, c), start=None, id=f"q{i}") for i, (e, c) in enumerate(questions)])
    return len(seen - recorded)


@pytest.mark.parametrize("make", [fallback, CASES["relay noisy"], CASES["coalition noisy"], CASES["coalition table"]])
def test_replays_make_exactly_the_calls_that_cannot_be_avoided(make: Callable[[], World]) -> None:
    world = make()
    said = play(world, tasks_of(1, 2, 2))
    players = world.env.team.specialists
    subsets = [frozenset(p for i, p in enumerate(players) if mask >> i & 1) for mask in range(2 ** len(players))]
    questions = [(e, s) for e in range(len(said)) for s in subsets]
    whatif = WhatIf(said, world)
    outcomes = whatif.ask(questions)
    assert whatif.ledger.calls == brute_calls(world, questions, said)
    naive = play(world, [replace(whatif.silence(e, s), start=None, id=f"n{i}") for i, (e, s) in enumerate(questions)])
    assert [o.mean for o in outcomes] == [x.reward for x in naive]


def test_the_same_question_is_asked_once() -> None:
    world = CASES["relay noisy"]()
    whatif = WhatIf(play(world, tasks_of(0, 1)), world)
    first = whatif.ask([(0, frozenset({"a1"}))] * 3)
    played = whatif.ledger.replays
    assert whatif.ask([(0, frozenset({"a1"}))]) == first[:1]
    assert whatif.ledger.replays == played == 1


def test_recorded_outcomes_are_used_before_any_replay() -> None:
    world = CASES["relay noisy"]()
    said = play(world, tasks_of(0, 1))[0]
    seen = tuple(Counterfactual(("a1",), reward, replicate=r) for r, reward in enumerate((0.25, 0.75, None)))
    other = Counterfactual(("a2",), 9.0, absence="removed")
    whatif = WhatIf([replace(said, counterfactuals=(*seen, other))], None)
    outcome = whatif.ask([(0, frozenset({"a1"}))])[0]
    assert outcome.known == (0.25, 0.75)
    # standard error: sd of (.25, .75) is .3536, over sqrt(2) = .25
    assert outcome.stderr == pytest.approx(0.25)
    with pytest.raises(UserError, match=r"'t0-0' records no outcome with \['a2'\] silenced"):
        whatif.ask([(0, frozenset({"a2"}))])


def test_replicates_differ_and_carry_a_standard_error() -> None:
    world = scripted("coalition_v0", {"preset": "or", "noise": 1.0}, "perfect")
    whatif = WhatIf(play(world, tasks_of(0, 1)), world, replicates=4)
    outcome = whatif.ask([(0, frozenset({"a"}))])[0]
    assert len(set(outcome.rewards)) == 4
    assert outcome.stderr == pytest.approx(np.std(outcome.rewards, ddof=1) / 2)
    single = WhatIf(whatif.episodes, world).ask([(0, frozenset({"a"}))])[0]
    assert single.rewards == outcome.rewards[:1]
    assert single.stderr is None


def test_counterfactuals_share_random_numbers_with_the_original() -> None:
    world = scripted("coalition_v0", {"preset": "additive", "noise": 1.0}, "perfect")
    said = play(world, tasks_of(0, 1))
    outcome = WhatIf(said, world).ask([(0, frozenset({"a"}))])[0]
    assert (said[0].reward or 0) - outcome.mean == pytest.approx(0.5)  # the noise is the same and cancels


def test_alternatives_of_a_sampling_policy_differ_and_the_executed_one_comes_first() -> None:
    world = CASES["coalition table"]()
    said = play(world, tasks_of(0, 1))
    forks = WhatIf(said, world).resample([(0, 1)], 8)[0]
    assert forks[0] == said[0]
    assert len({f.turns[1].text for f in forks}) == 2
    assert all(f.turns[0] == said[0].turns[0] for f in forks)
    assert len({f.turns[1].context for f in forks}) == 1
    assert len({f.turns[1].id for f in forks}) == 8


def test_a_context_is_branched_by_its_digest() -> None:
    world = CASES["coalition table"]()
    whatif = WhatIf(play(world, tasks_of(0, 1)), world)
    turn = whatif.episodes[0].turns[1]
    assert whatif.branch(turn.context or "", 4) == whatif.resample([(0, 1)], 4)[0]
    with pytest.raises(UserError, match="no turn has the context 'gone'"):
        whatif.branch("gone", 2)


def test_common_continuations_share_what_follows() -> None:
    world = scripted("coalition_v0", {"preset": "or", "noise": 1.0}, "perfect")
    said = play(world, tasks_of(0, 1))
    common = WhatIf(said, world, continuation="common").resample([(0, 0)], 2)[0]
    fresh = WhatIf(said, world).resample([(0, 0)], 2)[0]
    assert common[1].reward == said[0].reward
    assert fresh[1].reward != said[0].reward


def test_a_muted_message_reaches_nobody() -> None:
    world = scripted("relay_v0", {}, "perfect")
    whatif = WhatIf(play(world, tasks_of(0, 1)), world)
    muted = whatif.replay([whatif.silence_message(0, 1)])[0]
    assert [(t.text, t.null) for t in muted.turns[1:]] == [("", True), ("", False)]
    assert muted.reward == 0.0


def test_another_text_and_another_policy() -> None:
    world = scripted("relay_v0", {}, "perfect")
    world = World(world.env, {**world.policies, "mute": Scripted("silent")})
    whatif = WhatIf(play(world, tasks_of(0, 1)), world)
    lied, silent = whatif.replay([whatif.say_instead(0, 0, "quartz"), whatif.substitute(0, "a1", "mute")])
    assert [t.text for t in lied.turns] == ["quartz"] * 3
    assert [t.text for t in silent.turns][1:] == ["", ""]
    assert silent.turns[1].policy == "mute@silent"


def test_absence_by_reference_policy_and_by_removal() -> None:
    world = scripted("relay_v0", {}, "perfect")
    said = play(world, tasks_of(0, 1))
    with pytest.raises(UserError, match="needs a policy named 'reference'"):
        WhatIf(said, world, absence="reference_policy")
    trusty = World(world.env, {**world.policies, "reference": make_policy({"kind": "scripted"}, env=world.env)})
    a1 = frozenset({"a1"})
    assert WhatIf(said, trusty, absence="reference_policy").ask([(0, a1)])[0].mean == 1.0
    assert WhatIf(said, world, absence="removed").ask([(0, a1)])[0].mean == 1.0  # a0 has no teammate: it answers itself
    assert WhatIf(said, world).ask([(0, a1)])[0].mean == 0.0


def test_players_are_the_specialists_unless_all_are_asked_for() -> None:
    said = play(CASES["relay noisy"](), tasks_of(0, 1))
    assert WhatIf(said).players_of(0) == ("a1", "a2")
    assert WhatIf(said, players="all").players_of(0) == ("a0", "a1", "a2")


def test_a_record_of_another_environment_does_not_replay() -> None:
    said = play(CASES["relay noisy"](), tasks_of(0, 1))
    other = scripted("relay_v0", {"length": 2}, "perfect")
    with pytest.raises(UserError, match="does not replay"):
        WhatIf(said, other).ask([(0, frozenset({"a1"}))])
    lied = [replace(said[0], reward=(said[0].reward or 0) + 1)]
    with pytest.raises(UserError, match="does not replay"):
        WhatIf(lied, CASES["relay noisy"]()).ask([(0, frozenset({"a1"}))])
    with pytest.raises(UserError, match="records no seed"):
        WhatIf([replace(said[0], seed=None)], CASES["relay noisy"]()).ask([(0, frozenset({"a1"}))])


def test_another_version_of_a_policy_is_asked_again_and_said() -> None:
    world = CASES["relay noisy"]()
    said = play(world, tasks_of(0, 1))
    newer = scripted("relay_v0", {}, "perfect")
    whatif = WhatIf(said, newer)
    whatif.replay([whatif.say_instead(0, 0, said[0].turns[0].text)])
    assert whatif.ledger.calls == 2
    assert any("recorded by a1@noisy-0.7, replayed by a1@perfect" in w for w in whatif.warnings)


def test_a_tree_of_fan_out_2_4_is_eight_episodes_that_share_turns() -> None:
    world = CASES["coalition table"]()
    grown = tree(world, tasks_of(0, 2), {1: 2, 3: 4}, 8)
    assert len(grown) == 16
    one = grown[:8]
    assert len({e.turns[1].id for e in one}) == 2
    assert len({e.turns[3].id for e in one}) == 8
    assert len({e.turns[0].id for e in one}) == 1
    assert len({e.id for e in grown}) == 16
    assert {e.forked_from["turn"] for e in one if e.forked_from} == {1, 3}
    assert Key(0, "t0").branch(1, 1).branch(3, 2).sample in {e.sample for e in one}


def test_a_tree_larger_than_its_budget_is_refused() -> None:
    with pytest.raises(UserError, match=r"a budget of 4 episodes a task is too small.*at least 8"):
        tree(CASES["coalition table"](), tasks_of(0, 1), {0: 2, 1: 4}, 4)
    with pytest.raises(UserError, match="at least 2"):
        tree(CASES["coalition table"](), tasks_of(0, 1), "auto", 1)


def test_drawn_trees_fill_the_budget_at_turns_of_trainable_agents() -> None:
    world = CASES["coalition table"]()
    world.env.team = world.env.team.casting(frozen=["planner"])
    grown = tree(world, tasks_of(0, 3), "auto", 8)
    assert len(grown) == 24
    branched = {e.forked_from["turn"] for e in grown if e.forked_from}
    assert branched <= {1, 3, 5}


def test_players_of_a_large_record_without_teams_take_linear_time() -> None:
    episodes = [
        Episode(f"e{i}", f"t{i}", (Turn("p", "x", f"e{i}/0"), Turn("s", "x", f"e{i}/1")), 1.0) for i in range(8000)
    ]
    whatif = WhatIf(episodes)
    begun = time.perf_counter()
    assert {whatif.players_of(e) for e in range(len(episodes))} == {("s",)}
    assert time.perf_counter() - begun < 10


def test_two_texts_instead_of_one_message_are_two_replays() -> None:
    world = World(make_env("relay_v0"), {f"a{i}": Scripted("perfect", expert=Relay.expert) for i in range(3)})
    whatif = WhatIf(play(world, tasks_of(0, 1)), world)
    told = whatif.replay([whatif.say_instead(0, 1, "amber?"), whatif.say_instead(0, 1, "birch?")])
    assert [episode.turns[1].text for episode in told] == ["amber?", "birch?"]
