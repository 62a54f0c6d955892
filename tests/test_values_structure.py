"""Structures: what they refuse, which coalitions they need, and their file."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macredit.errors import UserError
from macredit.values.graph import myerson_weights
from macredit.values.linear import Linear
from macredit.values.masks import masks_of, members_of
from macredit.values.structure import Graph, Precedence, Unions, required_coalitions
from macredit.values.structure_file import read_structure, structure_from_json

TEAM = ("boss", "anna", "bert", "carl")


def test_a_chain_of_twenty_needs_210_coalitions() -> None:
    coalitions = required_coalitions(nx.path_graph(20), 20)
    assert coalitions.shape == (210, 20)  # 20·21/2 intervals
    assert coalitions.dtype == np.bool_
    starts = (np.diff(coalitions.astype(int), axis=1, prepend=0) == 1).sum(axis=1)
    assert (starts == 1).all()


@pytest.mark.parametrize("n", [2, 5, 14])
def test_a_star_needs_all_with_the_hub_and_everyone_alone(n: int) -> None:
    assert len(required_coalitions(nx.star_graph(n - 1))) == 2 ** (n - 1) + n - 1


def test_a_chain_of_forty_is_no_matter_of_2_to_the_40() -> None:
    assert required_coalitions(nx.path_graph(40)).shape == (820, 40)
    assert required_coalitions(nx.DiGraph(itertools.pairwise(range(60)))).shape == (60, 60)


@given(st.integers(1, 7), st.integers(0, 10**6))
@settings(deadline=None, max_examples=40)
def test_connected_and_feasible_coalitions_are_exactly_those(n: int, seed: int) -> None:
    graph = nx.gnp_random_graph(n, 0.4, seed=seed)
    subsets = [[i for i in range(n) if mask >> i & 1] for mask in range(1, 2**n)]
    connected = [mask for mask, s in enumerate(subsets, 1) if nx.is_connected(graph.subgraph(s))]
    assert Graph.of(graph, n).coalitions().tolist() == connected
    order = nx.DiGraph((max(e), min(e)) for e in graph.edges)  # player 0 comes last
    feasible = [m for m, s in enumerate(subsets, 1) if all(a in s for a, b in order.edges if b in s)]
    assert Precedence.of(order, n).coalitions().tolist() == feasible


def test_unions_need_some_of_one_and_all_or_none_of_the_others() -> None:
    # {a, b}, {c}: all but {a, c} and {b, c} of the other union's view: a, b, ab with and without c, and c alone
    assert Unions.of([["a", "b"], ["c"]], ("a", "b", "c")).coalitions().tolist() == [1, 2, 3, 4, 5, 6, 7]
    # {a, b}, {c, d}: no half of both: 5, 6, 9, 10 are missing
    expected = [1, 2, 3, 4, 7, 8, 11, 12, 13, 14, 15]
    assert Unions.of([["a", "b"], ["c", "d"]], ("a", "b", "c", "d")).coalitions().tolist() == expected


def test_links_count_once_and_directions_do_not_matter() -> None:
    both = Graph.of([("boss", "anna"), ("anna", "boss"), ("anna", "bert")], TEAM)
    assert both.links() == [("boss", "anna"), ("anna", "bert")]
    assert Graph.of(nx.DiGraph([("boss", "anna"), ("anna", "boss"), ("anna", "bert")]), TEAM) == both
    assert both.parts() == [["boss", "anna", "bert"], ["carl"]]
    assert Graph.of([("0", 1)], 2) == Graph.of([(0, 1)], 2)  # players without names go by number or its text


@pytest.mark.parametrize(
    ("make", "given_", "message"),
    [
        (Graph.of, [("boss", "ana")], r"unknown player 'ana'; expected one of .*Did you mean 'anna'\?"),
        (Graph.of, nx.empty_graph(2), "unknown player '0'"),
        (Graph.of, [("anna", "anna")], "player 'anna' is linked to itself; expected links between two"),
        (Graph.of, [("anna", "bert", "carl")], "a link is .*; expected a pair of players"),
        (Graph.of, ["ab"], "a link is 'ab'; expected a list"),
        (Graph.of, 3, "a graph is 3; expected a list"),
        (Graph.of, Graph((0, 1), ()), "a structure of the players 0, 1 was given for a game of boss, anna"),
        (Precedence.of, nx.path_graph(3), "a graph without directions"),
        (
            Precedence.of,
            [("boss", "anna"), ("anna", "bert"), ("bert", "boss")],
            "each of boss → anna → bert → boss must come before the next, which is a cycle; remove one",
        ),
        (Precedence.of, [("anna", "anna")], "linked to itself"),
        (Unions.of, [["boss", "anna"], ["anna", "bert", "carl"]], "player 'anna' is listed 2 times in the unions"),
        (Unions.of, [["boss", "anna", "bert"]], "player 'carl' is in no union; put every player in exactly one"),
    ],
)
def test_structures_that_do_not_fit(make: Any, given_: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make(given_, TEAM)


@pytest.mark.parametrize(
    ("players", "message"),
    [
        (63, "63 players were given; expected 1 to 62"),
        (0, "0 players were given"),
        (("a", "b", "a"), "'a' names two players"),
    ],
)
def test_players_that_are_none(players: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Graph.of([], players)


def test_what_is_no_structure_and_what_is_too_much_of_one() -> None:
    with pytest.raises(UserError, match="expected a Graph, Unions, Precedence or networkx graph"):
        required_coalitions([(0, 1)], 2)
    with pytest.raises(UserError, match="for a game of 0, 1, 2; expected the same players"):
        required_coalitions(Graph.of([(0, 1)], 2), 3)
    for structure in (nx.star_graph(39), nx.empty_graph(40, nx.DiGraph), Unions.of([[i] for i in range(40)], 40)):
        with pytest.raises(UserError, match="needs the worths of more than 4,194,304 coalitions; use a structure"):
            required_coalitions(structure)


def test_the_three_kinds_of_file(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text('{"edges": [["boss", "anna"], ["boss", "bert"], ["bert", "carl"]]}')
    assert read_structure(path, TEAM) == Graph(TEAM, ((0, 1), (0, 2), (2, 3)))
    path.write_text('{"unions": [["boss"], ["anna", "carl"], ["bert"]]}')
    assert read_structure(path, TEAM) == Unions(TEAM, ((0,), (1, 3), (2,)))
    path.write_text('{"precedence": [["boss", "anna"], ["boss", "bert"]]}')
    assert read_structure(path, TEAM) == Precedence(TEAM, ((0, 1), (0, 2)))
    assert structure_from_json({"edges": [[0, 1]]}, ("0", "1")) == Graph(("0", "1"), ((0, 1),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", r"a structure holds \[\]; expected an object with exactly one of edges, unions, precedence"),
        ("{}", "a structure holds the fields none"),
        ('{"edges": [], "unions": []}', "a structure holds the fields edges, unions; expected an object"),
        ('{"edges": [], "edges": []}', "'edges' stands twice in one object"),
        ('{"links": []}', "a structure holds the fields links"),
        ('{"edges": {"boss": "anna"}}', "'edges' is .*; expected a list of lists of players"),
        ('{"edges": [["boss", null]]}', "unknown player 'None'"),
        ('{"edges": [["boss", "anna"], ["bert", "carl"]]}', "no links lead from 'boss' to 'bert'.*add a link"),
        ('{"precedence": [["boss", "anna"], ["anna", "boss"]]}', "which is a cycle"),
    ],
)
def test_malformed_structure_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "graph.json"
    path.write_text(text)
    with pytest.raises(UserError, match=rf"graph\.json: .*{message}"):
        read_structure(path, TEAM)


def test_a_missing_structure_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.json: cannot be read .*expected a structure file"):
        read_structure(tmp_path / "none.json", TEAM)


def chain() -> tuple[Linear, Any, Any]:
    """A chain of three with worths: {0,1} = 1, {1,2} = 2, all = 4, alone 0."""
    coalitions = required_coalitions(nx.path_graph(3))
    return myerson_weights(Graph.of(nx.path_graph(3), 3)), coalitions, np.array([0.0, 0, 1, 0, 2, 4])


def test_values_from_just_the_coalitions_that_are_needed() -> None:
    value, coalitions, worths = chain()
    assert masks_of(coalitions, 3).tolist() == [1, 2, 3, 4, 6, 7]
    np.testing.assert_array_equal(members_of(masks_of(coalitions, 3), 3), coalitions)
    # v^g: 01 → 1, 12 → 2, 02 → 0, 012 → 4. φ_0 = 1/6 (v01 − v1) + 1/3 (v012 − v12) = 1/6 + 2/3 = 5/6
    # φ_2 = 2/6 + (4 − 1)/3 = 4/3, φ_1 = 4 − 5/6 − 4/3 = 11/6
    expected = np.array([5 / 6, 11 / 6, 4 / 3])
    np.testing.assert_allclose(value.of(coalitions, worths), expected, atol=1e-15)
    order = [5, 0, 3, 2, 1, 4]
    np.testing.assert_allclose(value.of(masks_of(coalitions, 3)[order], worths[order]), expected, atol=1e-15)
    # v(∅) = 1 and everything 1 higher, given either way; two games at once; coalitions nobody needs
    np.testing.assert_allclose(value.of(coalitions, worths + 1, empty=1), expected, atol=1e-15)
    np.testing.assert_allclose(value.of([0, 1, 2, 3, 4, 6, 7], [1, *(worths + 1)]), expected, atol=1e-15)
    both = value.of(coalitions, np.stack([worths, 2 * worths], axis=1))
    np.testing.assert_allclose(both, np.stack([expected, 2 * expected], axis=1), atol=1e-15)
    np.testing.assert_allclose(value.of([*masks_of(coalitions, 3), 5], [*worths, np.pi]), expected, atol=1e-15)


def test_the_worths_that_are_read_begin_with_that_of_nobody() -> None:
    value, coalitions, worths = chain()
    assert value.needed.tolist() == [0, *masks_of(coalitions, 3)]
    expected = [5 / 6, 11 / 6, 4 / 3]  # as above; v(∅) = 1 and everything 1 higher
    np.testing.assert_allclose(value.read(np.array([1, *(worths + 1)])), expected, atol=1e-15)
    both = value.read(np.array([[1, 0], *zip(worths + 1, 2 * worths, strict=True)]))
    np.testing.assert_allclose(both, np.stack([expected, 2 * np.array(expected)], axis=1), atol=1e-15)


@pytest.mark.parametrize(
    ("coalitions", "worths", "message"),
    [
        ([1, 2, 3, 4, 7], [0, 0, 1, 0, 4], r"coalition \{1, 2\} has no worth; give one for each"),
        ([1, 2], [0, 0], r"coalition \{0, 1\} \(and 3 more\) has no worth"),
        ([1, 2, 3, 4, 6, 7, 6], [0.0] * 7, r"coalition \{1, 2\} is listed twice"),
        ([1, 2, 3, 4, 6, 7], [0, 0, np.nan, 0, 2, 4], r"coalition \{0, 1\} has a worth that is not finite"),
        ([1, 2, 3, 4, 6, 7], [0.0] * 5, r"worths of shape \(5,\) were given for 6 coalitions"),
        ([[1, 0], [0, 1]], [0, 0], r"coalitions of shape \(2, 2\) and type int64 were given; expected bool\[C, 3\]"),
    ],
)
def test_worths_that_are_missing_or_wrong(coalitions: Any, worths: Any, message: str) -> None:
    value, _, _ = chain()
    with pytest.raises(UserError, match=message):
        value.of(coalitions, worths)
