"""The team's graph: where agents and arrows stand; the page draws them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np

Point = tuple[float, float]
WIDTH, MARGIN, RADIUS = 480.0, 72.0, 22.0


@dataclass(frozen=True, slots=True)
class Node:
    """An agent in the picture; ``tint`` runs from −1 to 1, None where there is no credit."""

    name: str
    x: float
    y: float
    lead: bool
    credit: float | None
    tint: float | None


@dataclass(frozen=True, slots=True)
class Edge:
    """Who messages whom, as a curve from rim to rim."""

    sender: str
    recipient: str
    path: str
    messages: int
    width: float


@dataclass(frozen=True, slots=True)
class Graph:
    """The team's picture."""

    width: float
    height: float
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def team_graph(
    names: Sequence[str],
    leads: Sequence[str],
    allowed: Iterable[tuple[str, str]],
    sent: Mapping[tuple[str, str], int],
    credit: Mapping[str, float | None],
) -> Graph:
    """Kamada–Kawai layout with its longest axis level; edge width grows with the square root of the messages."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(names)
    graph.add_edges_from([*allowed, *((a, b) for a, b in sent if a in names and b in names)])
    places, height = _places(graph, leads)
    largest = max((abs(c) for c in credit.values() if c is not None), default=0.0) or 1.0
    nodes = []
    for name in names:
        value = credit.get(name)
        x, y = places[name]
        nodes.append(Node(name, x, y, name in leads, value, None if value is None else value / largest))
    most = math.sqrt(max(sent.values(), default=1))
    edges = [
        Edge(a, b, _path(places[a], places[b]), sent.get((a, b), 0), 1.0 + 5.0 * math.sqrt(sent.get((a, b), 0)) / most)
        for a, b in graph.edges
        if a != b
    ]
    return Graph(WIDTH, height, tuple(nodes), tuple(edges))


def _places(graph: nx.DiGraph[str], leads: Sequence[str]) -> tuple[dict[str, Point], float]:
    """Agent → centre, and the picture's height."""
    names = list(graph)
    if len(names) == 1:
        return {names[0]: (WIDTH / 2, MARGIN)}, 2 * MARGIN
    near = dict(nx.all_pairs_shortest_path_length(graph.to_undirected()))
    apart = {a: {b: near[a].get(b, len(names)) for b in names} for a in names}
    found = nx.kamada_kawai_layout(graph, dist=apart)
    flat = np.array([found[name] for name in names])
    flat -= flat.mean(axis=0)
    flat = flat @ np.linalg.svd(flat, full_matrices=False)[2].T
    lead = names.index(leads[0])
    flat *= np.where(flat[lead] > 1e-9, -1.0, 1.0)
    span = np.ptp(flat, axis=0)
    stretch = (WIDTH - 2 * MARGIN) / max(float(span[0]), 1e-9)
    tall = min(float(span[1]) * stretch, 240.0)
    flat[:, 0] = MARGIN + (flat[:, 0] - flat[:, 0].min()) * stretch
    squeeze = tall / float(span[1]) if span[1] * stretch > 1.0 else 0.0
    flat[:, 1] = MARGIN + (flat[:, 1] - flat[:, 1].min()) * squeeze
    return {name: (float(x), float(y)) for name, (x, y) in zip(names, flat, strict=True)}, 2 * MARGIN + tall


def _path(start: Point, end: Point) -> str:
    """A slightly bent arrow, so that the way there and the way back both show."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = math.hypot(dx, dy) or 1.0
    ux, uy = dx / length, dy / length
    bend = 0.1 * length
    cx, cy = (start[0] + end[0]) / 2 - uy * bend, (start[1] + end[1]) / 2 + ux * bend
    ax, ay = _towards(start, (cx, cy), RADIUS + 3)
    bx, by = _towards(end, (cx, cy), RADIUS + 9)
    return f"M{ax:.1f} {ay:.1f}Q{cx:.1f} {cy:.1f} {bx:.1f} {by:.1f}"


def _towards(start: Point, end: Point, step: float) -> Point:
    length = math.hypot(end[0] - start[0], end[1] - start[1]) or 1.0
    return start[0] + (end[0] - start[0]) * step / length, start[1] + (end[1] - start[1]) * step / length
