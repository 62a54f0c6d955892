"""What can be taken away from an episode, and when taking it away changes nothing."""

from dataclasses import replace

from macredit.episode import Episode, Turn
from macredit.team import Team
from macredit.units import Link, MessageUnit, TurnUnit, units_by_turn, units_of

TEAM = Team.orchestrated("p", ["a", "b"])


def talk() -> Episode:
    """p asks a and b; a answers; b answers and is not read any more."""
    turns = (
        Turn("p", "both?", "e/0", ("a", "b"), ()),
        Turn("a", "yes", "e/1", ("p",), ("e/0",)),
        Turn("b", "late", "e/2", ("p",), ("e/0",)),
        Turn("p", "done", "e/3", ("user",), ("e/1", "e/0")),
    )
    return Episode("e", "t", turns, 1.0, team=TEAM)


def test_the_players_of_each_kind() -> None:
    assert units_of(talk(), TEAM, "agents") == ("a", "b")
    assert units_of(talk(), TEAM, "turns") == (TurnUnit("p", 0), TurnUnit("a", 0), TurnUnit("b", 0), TurnUnit("p", 1))
    assert [str(unit) for unit in units_of(talk(), TEAM, "messages")] == ["p/0", "a/0", "b/0", "p/1"]
    assert [str(unit) for unit in units_of(talk(), TEAM, "links")] == ["p>a", "p>b", "a>p", "b>p"]


def test_a_turn_and_its_message_are_not_the_same_player() -> None:
    assert len({TurnUnit("a", 0), MessageUnit("a", 0)}) == 2


def test_a_message_that_nobody_read_and_nothing_used_did_not_come_up() -> None:
    used = units_by_turn(talk(), TEAM, lambda turn: "user" in (turn.to or ()))
    assert {MessageUnit("b", 0), Link("b", "p")}.isdisjoint(used[2])
    assert {TurnUnit("b", 0), "b"} <= used[2]
    assert {MessageUnit("a", 0), Link("a", "p")} <= used[1]
    assert MessageUnit("p", 1) in used[3]  # nobody reads the answer, but the score does
    everything = units_by_turn(talk(), TEAM, lambda _: True)
    assert MessageUnit("b", 0) in everything[2]


def test_where_the_record_does_not_say_who_read_everything_may_have_been_read() -> None:
    episode = talk()
    unknown = replace(episode, turns=tuple(replace(turn, reads=None) for turn in episode.turns))
    assert MessageUnit("b", 0) in units_by_turn(unknown, TEAM, lambda _: False)[2]


def test_an_agent_s_own_memory_is_no_reading_by_others() -> None:
    alone = (Turn("p", "note", "e/0", ("a",), ()), Turn("p", "done", "e/1", ("user",), ("e/0",)))
    used = units_by_turn(Episode("e", "t", alone, 1.0, team=TEAM), TEAM, lambda _: False)
    assert MessageUnit("p", 0) not in used[0]
