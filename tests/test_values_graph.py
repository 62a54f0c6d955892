"""Myerson and position values against their definitions, their axioms and hand-worked numbers."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macredit.errors import UserError
from macredit.values import shapley
from macredit.values.graph import myerson, myerson_weights, position, position_weights
from macredit.values.graph_kernel import restrict
from macredit.values.structure import Graph, required_coalitions
from macredit.values.table import as_table

MAJORITY = [0.0, 0, 0, 1, 0, 1, 1, 1]


def parts(worths: npt.NDArray[np.float64], graph: Any) -> float:
    """Σ over the connected parts of a graph of (v(C) − v(∅))."""
    return float(sum(worths[sum(1 << i for i in part)] - worths[0] for part in nx.connected_components(graph)))


@st.composite
def games(draw: st.DrawFn, players: int = 7) -> tuple[npt.NDArray[np.float64], Any]:
    n = draw(st.integers(1, players))
    seed = draw(st.integers(0, 10**6))
    graph = nx.gnp_random_graph(n, draw(st.sampled_from([0.2, 0.5, 1.0])), seed=seed)
    return np.random.default_rng(seed).normal(size=2**n), graph


def test_majority_on_a_line_by_hand() -> None:
    # 0 – 1 – 2: {0, 2} is cut, so 1 is needed for every win and gains as the hub of a glove game
    np.testing.assert_allclose(myerson(MAJORITY, [(0, 1), (1, 2)]), [1 / 6, 2 / 3, 1 / 6], atol=1e-15)
    # either link wins alone, so each is worth 1/2; a player's half of its links: 1/4, 1/2, 1/4
    assert position(MAJORITY, [(0, 1), (1, 2)]) == pytest.approx({(0, 1): 1 / 2, (1, 2): 1 / 2})
    # with all links: the first of three wins
    assert position(MAJORITY, nx.complete_graph(3)) == pytest.approx({(0, 1): 1 / 3, (0, 2): 1 / 3, (1, 2): 1 / 3})


def test_what_players_earn_alone_is_no_link_s_doing() -> None:
    # v = 1, 2, 4 alone on top of v(∅) = 10; together nothing more
    additive = [10.0, 11, 12, 13, 14, 15, 16, 17]
    np.testing.assert_allclose(list(position(additive, [(0, 1), (1, 2)]).values()), [0, 0], atol=1e-14)
    np.testing.assert_allclose(myerson(additive, [(0, 1), (1, 2)]), [1, 2, 4], atol=1e-14)
    assert position(additive, []) == {}
    np.testing.assert_allclose(myerson([2.0, 5], []), [3])


@given(games())
@settings(deadline=None, max_examples=40)
def test_myerson_is_the_shapley_value_of_connected_parts(game: Any) -> None:
    table, graph = game
    n = len(graph)
    members = [[i for i in range(n) if mask >> i & 1] for mask in range(2**n)]
    by_parts = [table[0] + parts(table, graph.subgraph(s)) for s in members]
    links = Graph.of(graph, n)
    np.testing.assert_allclose(restrict(table, links.near()), by_parts, atol=1e-12)
    np.testing.assert_allclose(myerson(table, graph), shapley(by_parts), atol=1e-12)
    needed = links.coalitions()
    by_weights = myerson_weights(links).of(needed, table[needed], empty=table[0])
    np.testing.assert_allclose(by_weights, shapley(by_parts), atol=1e-12)


@given(games(players=5))
@settings(deadline=None, max_examples=25)
def test_position_is_the_shapley_value_of_sets_of_links(game: Any) -> None:
    table, graph = game
    edges = list(graph.edges)[:8]
    graph = nx.Graph(edges)
    graph.add_nodes_from(range(len(table).bit_length() - 1))
    worths = []
    for mask in range(2 ** len(edges)):
        some = nx.create_empty_copy(graph)
        some.add_edges_from(edge for k, edge in enumerate(edges) if mask >> k & 1)
        worths.append(parts(table, some))
    values = position(table, Graph.of(edges, len(graph)))
    assert list(values) == edges
    if edges:
        np.testing.assert_allclose(list(values.values()), shapley(worths), atol=1e-12)


@given(games())
@settings(deadline=None, max_examples=25)
def test_axioms_of_links(game: Any) -> None:
    table, graph = game
    values, links = myerson(table, graph), position(table, graph)
    alone = table[1 << np.arange(len(graph))] - table[0]
    for part in nx.connected_components(graph):  # component efficiency
        worth = table[sum(1 << i for i in part)] - table[0]
        assert values[list(part)].sum() == pytest.approx(worth, abs=1e-12)
        inside = sum(value for (i, _), value in links.items() if i in part)
        assert inside == pytest.approx(worth - alone[list(part)].sum(), abs=1e-11)
    for i, j in list(graph.edges)[:3]:  # fairness: a link's two ends gain the same from it
        without = myerson(table, nx.restricted_view(graph, [], [(i, j)]))
        assert values[i] - without[i] == pytest.approx(values[j] - without[j], abs=1e-12)


def test_dense_graphs_of_many_links() -> None:
    # 9 players, 36 links; symmetric game v = |S|²: by symmetry each link earns (81 − 9) / 36 = 2
    table = np.bitwise_count(np.arange(2**9)).astype(float) ** 2
    np.testing.assert_allclose(list(position(table, nx.complete_graph(9)).values()), np.full(36, 2), atol=1e-12)
    np.testing.assert_allclose(myerson(table, nx.complete_graph(9)), np.full(9, 9), atol=1e-12)


def test_a_chain_of_forty() -> None:
    graph = Graph.of(nx.path_graph(40), 40)
    coalitions = required_coalitions(graph)
    size = coalitions.sum(axis=1)
    # v = |C|² on intervals = number of ordered pairs (i, j): a pair earns only when all between are there, and shares
    # its 2 among the d + 1 players (Myerson) or d links (position) from i to j
    players, links = np.zeros(40), np.zeros(39)
    for i in range(40):
        players[i] += 1
        for j in range(i + 1, 40):
            players[i : j + 1] += 2 / (j - i + 1)
            links[i:j] += 2 / (j - i)
    np.testing.assert_allclose(myerson_weights(graph).of(coalitions, size**2), players, rtol=1e-12)
    np.testing.assert_allclose(position_weights(graph).of(coalitions, size**2), links, rtol=1e-11)


@given(games(players=6), st.integers(2, 6))
@settings(deadline=None, max_examples=25)
def test_a_leader_who_is_always_there(game: Any, seed: int) -> None:
    table, graph = game
    n = len(graph)
    led: Any = nx.Graph(graph)
    led.add_node("boss")
    led.add_edges_from((i, "boss") for i in range(n) if seed * (i + 1) % 3)
    weights = myerson_weights(Graph.of(led, [*range(n), "boss"]), led=True)
    reached = []
    for mask in range(2**n):
        present = led.subgraph([*(i for i in range(n) if mask >> i & 1), "boss"])
        part = nx.node_connected_component(present, "boss") - {"boss"}
        reached.append(table[sum(1 << i for i in part)])
    found = weights.of(np.arange(2**n), table)
    np.testing.assert_allclose(found, shapley(reached), atol=1e-12)


def test_a_line_behind_its_leader_by_hand() -> None:
    # boss – a – b: b alone reaches nobody. φ_a = ½ v(a) + ½ v(ab) = 2, φ_b = ½ (v(ab) − v(a)) = 1
    weights = myerson_weights(Graph.of([("boss", "a"), ("a", "b")], ("a", "b", "boss")), led=True)
    assert weights.players == ("a", "b")
    assert weights.coalitions.tolist() == [1, 3]
    np.testing.assert_allclose(weights.of([1, 3], [1, 3]), [2, 1])
    alone = myerson_weights(Graph.of([("a", "b")], ("a", "b", "boss")), led=True)
    assert alone.of(np.arange(4), [1.0, 5, 6, 7]).tolist() == [0, 0]


def test_names_and_other_tables() -> None:
    named = {(): 0, ("a",): 0, ("b",): 0, ("c",): 0, ("a", "b"): 1, ("a", "c"): 1, ("b", "c"): 1, ("a", "b", "c"): 1}
    graph = nx.Graph([("b", "a"), ("c", "b")])
    np.testing.assert_allclose(myerson(named, graph), [1 / 6, 2 / 3, 1 / 6], atol=1e-15)
    assert position(named, graph) == pytest.approx({("b", "a"): 1 / 2, ("b", "c"): 1 / 2})
    assert myerson(np.array(MAJORITY, np.float32), [(0, 1), (1, 2)]).dtype == np.float32


def test_unconnected_coalitions_are_never_read() -> None:
    table = np.array(MAJORITY)
    table[5] = np.nan
    np.testing.assert_allclose(myerson(table, [(0, 1), (1, 2)]), [1 / 6, 2 / 3, 1 / 6], atol=1e-15)
    for wrong in (np.nan, np.inf):
        table[6] = wrong
        for value in (myerson, position):
            with pytest.raises(UserError, match=r"coalition \{1, 2\} .*not finite"):
                value(table, [(0, 1), (1, 2)])


def test_torch_tensors_keep_their_gradient() -> None:
    torch = pytest.importorskip("torch")
    table = torch.tensor(MAJORITY, dtype=torch.float64, requires_grad=True)
    values = myerson(table, [(0, 1), (1, 2)])
    values[0].backward()
    np.testing.assert_allclose(values.tolist(), [1 / 6, 2 / 3, 1 / 6], atol=1e-15)
    # φ_0 = 1/2 v(0) + 1/6 (v(01) − v(1)) + 1/3 (v(012) − v(12)), less v(∅) / 2; {0, 2} is not connected
    assert table.grad is not None
    np.testing.assert_allclose(table.grad.tolist(), [-1 / 2, 1 / 2, -1 / 6, 1 / 6, 0, 0, -1 / 3, 1 / 3], atol=1e-15)
    assert as_table(table).native is False


def test_graphs_that_do_not_fit() -> None:
    with pytest.raises(UserError, match="unknown player '3'; expected one of 0, 1, 2"):
        myerson(MAJORITY, [(0, 3)])
    with pytest.raises(UserError, match="player 1 is linked to itself"):
        position(MAJORITY, [(1, 1)])
    with pytest.raises(UserError, match="expected 2"):
        myerson([1.0, 2, 3], [])
