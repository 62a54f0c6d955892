import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from macredit.learn import TrainRow
from macredit.learn.batch import by_sequence
from macredit.learn.pack import Pack, packed, packs


def row(ids: list[int], reply: int, sequence: int = 0) -> TrainRow:
    mask = np.arange(len(ids)) >= len(ids) - reply
    return TrainRow(np.array(ids), mask, np.zeros(len(ids)), 1.0, 1.0, sequence)


def seen(pack: Pack, place: int) -> list[int]:
    """The ids that an id of the flat sequence sees, itself last."""
    segment = next(s for s in pack.segments if s.start <= place < s.stop)
    before = [pack.ids[pack.segments[s].start : pack.segments[s].stop] for s in segment.path]
    return [int(i) for i in np.concatenate([*before, pack.ids[segment.start : place + 1]])]


ROLE = list(range(100, 130))
TREES = st.lists(
    st.tuples(st.integers(0, 30), st.lists(st.integers(0, 2), min_size=2, max_size=40), st.integers(1, 8)),
    min_size=1, max_size=12,
)  # fmt: skip


@given(TREES)
def test_every_trained_id_is_predicted_from_what_stands_before_it(shape: list[tuple[int, list[int], int]]) -> None:
    rows = [row(ROLE[:shared] + rest, min(reply, len(rest) - 1)) for shared, rest, reply in shape]
    pack = packed(rows)
    places = iter(zip(pack.places.tolist(), pack.targets.tolist(), strict=True))
    for one in rows:
        for at in np.flatnonzero(one.mask):
            place, target = next(places)
            assert seen(pack, place) == one.ids[:at].tolist()
            assert pack.positions[place] == at - 1
            assert target == one.ids[at]
    assert next(places, None) is None
    assert len(pack.ids) <= sum(int(np.flatnonzero(one.mask)[-1]) for one in rows)


def test_what_rows_begin_with_alike_is_there_once() -> None:
    one, two, other = row([*ROLE, 1, 2], 2), row([*ROLE, 1, 2, 3, 4], 2), row([*ROLE[:15], 1, 2], 1)
    assert packed([one]).ids.tolist() == [*ROLE, 1]  # the last trained id predicts nothing
    assert packed([one, one]).ids.tolist() == [*ROLE, 1]
    assert packed([two, one]).ids.tolist() == [*ROLE, 1, 2, 3]  # a conversation is as long as its last turn
    assert len(packed([one, other]).ids) == 31 + 16  # 15 ids alike are not worth a segment


def test_packs_of_rows_with_nothing_in_common_are_within_the_budget() -> None:
    rows = [row(list(range(100 * n, 100 * n + 40 + n)), 1, n) for n in range(9)]  # 39 to 47 ids to compute
    assert [[one.sequence for one in group] for group in packs(rows, 126)] == [[0, 1, 2], [3, 4], [5, 6], [7, 8]]


@given(st.lists(st.tuples(st.integers(2, 90), st.integers(0, 5)), min_size=1, max_size=20), st.integers(4, 400))
def test_packs_keep_sequences_whole_and_near_the_budget(shape: list[tuple[int, int]], budget: int) -> None:
    rows = [row(list(range(sequence, sequence + length)), 1, sequence) for length, sequence in shape]
    groups = packs(rows, budget)
    assert sorted(map(id, rows)) == sorted(id(one) for group in groups for one in group)
    homes = [{one.sequence for one in group} for group in groups]
    assert sum(map(len, homes)) == len({one.sequence for one in rows})
    for group, home in zip(groups, homes, strict=True):
        assert len(home) == 1 or len(packed(group).ids) <= budget + 15 * len(group)


def test_rows_that_begin_alike_go_together() -> None:
    tasks = {k: [row([k, *ROLE, k, n], 1, 10 * k + n) for n in range(3)] for k in (1, 2, 3)}
    mixed = [tasks[k][n] for n in range(3) for k in (3, 1, 2)]
    groups = packs(mixed, 66)  # each task: 32 ids that its rows share
    assert [[one.sequence // 10 for one in group] for group in groups] == [[1, 1, 1, 2, 2, 2], [3, 3, 3]]
    assert len(packs(mixed, 32)) == 3
    assert len(by_sequence(groups[0])) == 6
