from dataclasses import replace

import numpy as np
import pytest

from macredit.credit.method import Credits
from macredit.episode import Episode, Turn
from macredit.errors import UserError
from macredit.learn import TrainRow, imitation_rows, train_rows
from macredit.learn.batch import by_gradient, tokens_of
from macredit.rows import FloatN, IntN, rows_of
from macredit.team import Agent, Team

TEAM = Team((Agent("a", policy="p"), Agent("b", policy="p"), Agent("c", trainable=False)), "a", (("a", "b"),))


def turn(agent: str, turn_id: str, prompt: tuple[int, ...], tokens: tuple[int, ...], after: str | None = None) -> Turn:
    return Turn(
        agent, "text", turn_id, prompt_ids=prompt, prompt_after=after, token_ids=tokens, logprobs=(-0.5,) * len(tokens)
    )


def credits_of(episodes: list[Episode], weight: FloatN | None = None, sequence: IntN | None = None) -> Credits:
    rows = rows_of(episodes)
    n, zero = len(rows), np.zeros(len(rows))
    weight = np.ones(n) if weight is None else weight
    return Credits(rows, zero, np.arange(1.0, n + 1.0), weight, (None,) * n, zero, sequence=sequence)


def shared() -> list[Episode]:
    """Two episodes that share turn ``x``; the first goes on with a continued prompt."""
    x = turn("a", "x", (1, 2), (3,))
    return [
        Episode("e0", "t", (x, turn("b", "y", (4,), (5, 6)), turn("a", "z", (7,), (8,), after="x")), 1.0, team=TEAM),
        Episode("e1", "t", (x, turn("c", "w", (9,), (9,))), 0.0, team=TEAM),
    ]


def test_rows_of_one_policy() -> None:
    rows = train_rows(credits_of(shared()), "p")
    assert [row.ids.tolist() for row in rows] == [[1, 2, 3], [4, 5, 6], [1, 2, 3, 7, 8]]  # x once, no frozen c
    assert [row.mask.astype(int).tolist() for row in rows] == [[0, 0, 1], [0, 1, 1], [0, 0, 0, 0, 1]]
    assert rows[2].logprob.tolist() == [0, 0, 0, 0, -0.5]
    assert [row.advantage for row in rows] == [1, 2, 3]
    assert [row.sequence for row in rows] == [0, 1, 2]
    assert train_rows(credits_of(shared()), "c") == []


def test_weight_zero_vanishes_and_sequences_are_kept() -> None:
    weight, sequence = np.array([1.0, 0, 0.5, 1, 1]), np.array([4, 4, 4, 5, 5])
    rows = train_rows(credits_of(shared(), weight=weight, sequence=sequence), "p")
    assert [(row.weight, row.sequence) for row in rows] == [(1.0, 4), (0.5, 4)]


def test_a_policy_without_logprobs_is_named() -> None:
    bare = Episode("e", "t", (Turn("a", "hi", "x"),), 1.0, team=TEAM)
    with pytest.raises(UserError, match=r"agent 'a' \(turn 'x'\).*hf or table policy, or freeze it"):
        train_rows(credits_of([bare]), "p")


def test_imitation_needs_no_logprobs() -> None:
    told = replace(turn("a", "x", (1,), (2,)), logprobs=None)
    silent = Turn("b", "", "y", null=True)
    rows = imitation_rows([Episode("e", "t", (told, silent), 1.0, team=TEAM)], "p")
    assert [(row.ids.tolist(), row.advantage) for row in rows] == [([1, 2], 1.0)]


def plain(length: int, sequence: int) -> TrainRow:
    mask = np.arange(length) >= 1
    return TrainRow(np.arange(length), mask, np.zeros(length), 1.0, 1.0, sequence)


def said(prompt: list[int], reply: list[int], sequence: int = 0, advantage: float = 1.0) -> TrainRow:
    ids = np.array(prompt + reply)
    return TrainRow(ids, np.arange(len(ids)) >= len(prompt), np.zeros(len(ids)), advantage, 1.0, sequence)


def test_a_sequence_is_idle_when_nothing_in_it_has_a_gradient() -> None:
    zero, one = said([0], [1], 0, 0.0), said([0], [1], 0, 1.0)
    other = said([0], [1], 1, 0.0)
    pulled = replace(other, sequence=2, reference=np.zeros(2))
    assert by_gradient([zero, other, one, pulled]) == ([zero, one, pulled], [other])


def test_flat_tokens() -> None:
    rows = [plain(3, 7), replace(plain(2, 8), weight=2.0, advantage=-1.0)]
    tokens = tokens_of(rows, "token-mean")
    assert tokens.advantage.tolist() == [1, 1, -1]
    assert tokens.coefficient == pytest.approx([0.25, 0.25, 0.5])  # weights 1, 1, 2 over 4
    assert tokens.part(1, 3).sequence.tolist() == [7, 8]


def test_a_correction_multiplies_the_advantage_of_each_token() -> None:
    row = replace(plain(3, 7), advantage=-2.0, correction=np.array([9.0, 0.5, 1.5]))
    assert tokens_of([row]).advantage.tolist() == [-1.0, -3.0]
