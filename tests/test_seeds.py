"""Keyed randomness."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from macredit.seeds import Key, generator

KEY = Key(17, "t0", 3)


def test_equal_keys_draw_equal_numbers_and_nothing_else_matters() -> None:
    np.random.default_rng(0).random(5)
    assert KEY.stream("policy", "solver", 2).random() == Key(17, "t0", 3).stream("policy", "solver", 2).random()


def test_a_group_faces_one_instance_and_answers_differently() -> None:
    other = Key(17, "t0", 4)
    assert KEY.instance().random() == other.instance().random()
    assert KEY.stream("policy", "solver").random() != other.stream("policy", "solver").random()


@given(st.integers(0, 2**31), st.text(), st.integers(0, 9), st.text(), st.integers(0, 9))
def test_every_part_of_the_key_matters(seed: int, task: str, group: int, agent: str, call: int) -> None:
    here = Key(seed, task, group).stream("policy", agent, call).random()
    others = [
        Key(seed + 1, task, group).stream("policy", agent, call),
        Key(seed, task + "x", group).stream("policy", agent, call),
        Key(seed, task, group + 1).stream("policy", agent, call),
        Key(seed, task, group).stream("env", agent, call),
        Key(seed, task, group).stream("policy", agent + "x", call),
        Key(seed, task, group).stream("policy", agent, call + 1),
        Key(seed, task, group, (0, 1)).stream("policy", agent, call),
    ]
    assert all(rng.random() != here for rng in others)


def test_surrogates_in_names_do_not_break_keys() -> None:
    assert 0 <= generator("\ud800").random() < 1


def test_the_executed_alternative_keeps_its_path() -> None:
    assert KEY.branch(2, 0) == KEY
    assert KEY.branch(2, 1).branch(4, 3).sample == (2, 1, 4, 3)


def test_a_branch_acts_from_its_turn_on() -> None:
    key = KEY.branch(2, 1)
    assert key.at_turn(1).sample == ()
    assert key.at_turn(2).sample == key.at_turn(3).sample == (2, 1)


def test_common_continuations_drop_the_path_after_the_branched_turn() -> None:
    key = KEY.branch(2, 1)
    assert [key.at_turn(t, "common").sample for t in (1, 2, 3)] == [(), (2, 1), ()]


def test_replicate_0_shares_the_original_and_others_act_everywhere() -> None:
    assert KEY.replicate(0) == KEY
    assert KEY.replicate(2).at_turn(0).sample == ("rep", 2)
