import networkx as nx
import pytest

from macredit.errors import UserError
from macredit.team import Agent, Team


def test_shapes() -> None:
    star = Team.orchestrated("p", ("a", "b"))
    assert star.edges == (("p", "a"), ("a", "p"), ("p", "b"), ("b", "p"))
    assert star.specialists == ("a", "b")
    line = Team.line(3)
    assert line.edges == (("a0", "a1"), ("a1", "a2"))
    assert line.orchestrator == "a0"
    assert line.teammates("a2") == ()
    assert Team.line(("x", "y")).names == ("x", "y")
    debate = Team.debate(2)
    assert debate.orchestrator == "judge"
    assert len(debate.edges) == 3 * 2
    mixture = Team.mixture(2)
    assert mixture.teammates("proposer0") == ("aggregator",)


def test_from_graph_and_back() -> None:
    graph: nx.DiGraph[str] = nx.DiGraph([("p", "a"), ("a", "p")])
    graph.add_node("a", role="Add.", policy="small", trainable=False)
    team = Team.from_graph(graph, "p")
    assert team["a"] == Agent("a", "Add.", "small", trainable=False)
    assert nx.utils.graphs_equal(Team.from_graph(team.graph(), "p").graph(), team.graph())


def test_an_agent_is_spoken_for_by_a_policy_of_its_own_name_unless_told() -> None:
    team = Team.line(2).casting(policies={"a1": "shared"}, roles={"a0": "Lead."}, frozen=("a1",))
    assert [agent.policy for agent in team.agents] == ["a0", "shared"]
    assert [agent.trainable for agent in team.agents] == [True, False]
    assert team["a0"].role == "Lead."


def test_json_round_trip() -> None:
    team = Team.orchestrated("p", ("a",)).casting(roles={"a": "Add."}, policies={"p": "x", "a": "y"}, frozen=("a",))
    assert team.to_json() == {
        "orchestrator": "p",
        "agents": {"p": {"policy": "x"}, "a": {"policy": "y", "role": "Add.", "trainable": False}},
        "edges": [["p", "a"], ["a", "p"]],
    }
    assert Team.from_json(team.to_json()) == team


def test_absent_edges_let_everyone_message_everyone() -> None:
    team = Team.from_json({"orchestrator": "p", "agents": {"p": {}, "a": {}}})
    assert team.edges == (("p", "a"), ("a", "p"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Team((), "p"), "a team of nobody"),
        (lambda: Team((Agent("a"), Agent("a")), "a"), "two agents share a name"),
        (lambda: Team((Agent("planner"),), "planer"), "unknown orchestrator 'planer'.*Did you mean 'planner'"),
        (lambda: Team((Agent("a"), Agent("b")), "a", (("a", "c"),)), r"unknown agent on edge \('a', 'c'\) 'c'"),
        (lambda: Team((Agent("a"), Agent("b")), "a", (("b", "a"),)), "isolates the orchestrator 'a'"),
        (lambda: Team.line(0), "a line of 0 agents"),
        (lambda: Team.line(2)["a9"], "unknown agent 'a9'"),
        (lambda: Team.line(2).casting(roles={"a9": ""}), "unknown agent 'a9'"),
        (lambda: Team.from_json({"agents": {}}), "needs 'orchestrator'"),
        (lambda: Team.from_json({"orchestrator": "p", "agents": {"p": {"skill": 1}}}), "team agent 'p' is"),
        (lambda: Team.from_json({"orchestrator": "p", "agents": {"p": {}}, "edges": [["p"]]}), "team edges are"),
    ],
)
def test_mistakes_are_named(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(UserError, match=message):
        make()
