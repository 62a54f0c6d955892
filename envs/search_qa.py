"""Router, searcher, answerer: questions whose answer takes several facts, found with a real retrieval tool (BM25)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import bm25s
import numpy as np

from macredit.env import Heard, Message, TeamEnv
from macredit.errors import UserError
from macredit.policy import Request
from macredit.team import Agent, Team

from .tasks import final, find_scorer, read_lines, read_tasks

ENTITIES = tuple(
    tuple(names.split())
    for names in (
        "Ada Ben Cleo Dan Eva Finn Gina Hugo Iris Jon Kate Leo Mia Ned Olga Paul",
        "Acme Bolt Corvus Delta Elmwood Fontis Gravit Helio Inova Jupia Kestrel Lumen Mondo Nexa Orbis Pylon",
        "Arles Bergen Cadiz Delft Evora Fulda Genoa Hobart Izmir Jaipur Kyoto Lagos Malmo Nantes Osaka Porto",
        "Arvia Brento Caldor Dunmar Estra Felden Gorwin Hestia Ilmar Jorvik Kald Lorne Morvan Nerida Ostar Prell",
        "Arvish Brent Caldic Dunic Estric Feldi Gorish Hestic Ilmic Jorvi Kaldi Lornish Morvi Neric Ostic Prellic",
    )
)
"""People, companies, cities, countries, languages."""

CHAIN = (
    ("works for", "Which company does {} work for?"),
    ("is based in", "In which city is the employer of {} based?"),
    ("lies in", "In which country is the employer of {} based?"),
    ("speaks", "Which language is spoken where the employer of {} is based?"),
)
"""Relation from one kind of entity to the next, and the question that ends there."""

ROLES = {
    "router": "You are the router. Reply search and what to look up, or reply answer and all facts you know.\n"
    "--- user\nQuestion: In which city is the employer of Zoe based?\n--- assistant\nsearch Zoe works for\n"
    "--- user\nsearcher: Zoe works for Umbra.\n--- assistant\nsearch Umbra is based in\n"
    "--- user\nsearcher: Umbra is based in Turin.\n--- assistant\nanswer Zoe works for Umbra. Umbra is based in Turin.",
    "searcher": "You are the searcher. Look things up with @search, then repeat what was found.\n"
    "--- user\nrouter: search Zoe works for\n--- assistant\n@search Zoe works for\n"
    "--- user\nsearch: Zoe works for Umbra.\n--- assistant\nZoe works for Umbra.",
    "answerer": "You are the answerer. Reply with the answer alone.\n"
    "--- user\nQuestion: In which city is the employer of Zoe based?\n"
    "router: answer Zoe works for Umbra. Umbra is based in Turin.\n--- assistant\nTurin",
}


@dataclass(frozen=True)
class Quest:
    """The question, where its answer stands, and how far the team is."""

    question: str
    answer: str
    facts: tuple[str, ...]
    """The supporting facts."""
    documents: tuple[str, ...]
    scorer: str = "exact"
    searches: int = 0
    """How often the searcher was sent."""
    said: str = ""
    """What the user was told."""


class SearchQA(TeamEnv):
    """The router sends the searcher or the answerer; the searcher has the tool ``search``; 1 for the right answer.

    Only the router and the answerer know the question, and only the searcher can look things up. The router's
    unaddressed text goes to the answerer if it says "answer" before any "search" (or no search is left), else to the
    searcher; the searcher's goes to ``search``, and once it has results, to the router. Orchestration of Dr. MAS
    (arXiv 2602.08847); BM25: Robertson & Zaragoza (2009).

    Args:
        hops: how many facts the answer takes, 1 to 4.
        size: entities of each kind in the generated knowledge base, 2 to 16.
        top: documents a search returns.
        searches: how often the searcher may be sent.
        documents: the user's own documents instead: JSON Lines of text. Needs ``data``.
        data: tasks on them: JSON Lines of question, answer, perhaps facts (the supporting ones) and scorer.

    Raises:
        UserError: a number out of range, or a bad file.
    """

    name = "search_qa_v0"
    tools = ("search",)

    def __init__(
        self,
        hops: int = 2,
        size: int = 8,
        top: int = 3,
        searches: int = 4,
        documents: str | None = None,
        data: str | None = None,
    ) -> None:
        for what, given, least, most in (
            ("hops", hops, 1, len(CHAIN)), ("size", size, 2, len(ENTITIES[0])), ("top", top, 1, 100),
            ("searches", searches, 1, 100),
        ):  # fmt: skip
            if not least <= given <= most:
                raise UserError(f"{what} is {given}; expected {least} to {most}")
        if (documents is None) != (data is None):
            raise UserError("documents and data belong together; give both, or neither for a generated knowledge base")
        self.hops, self.size, self.top, self.searches = hops, size, top, searches
        self.tasks = read_tasks(data) if data else ()
        self.documents = tuple(line["text"] for line in read_lines(documents, {"text": str})) if documents else ()
        edges = (("router", "searcher"), ("searcher", "router"), ("router", "answerer"))
        agents = tuple(Agent(name, role) for name, role in ROLES.items())
        super().__init__(Team(agents, "router", edges), max_turns=8 * searches + 4)

    def begin(self, rng: np.random.Generator) -> Quest:
        """Draw a knowledge base and a question, or one of the user's tasks."""
        if not self.tasks:
            return _generate(rng, self.hops, self.size)
        task = self.tasks[int(rng.integers(len(self.tasks)))]
        facts = tuple(task.get("facts", ()))
        return Quest(task["question"], task["answer"], facts, self.documents, task.get("scorer", "exact"))

    def prompt(self, state: Quest, agent: str, unread: Sequence[Message]) -> str:
        """The question (not for the searcher), then what the agent was sent."""
        asked = [f"Question: {state.question}"] if agent != "searcher" and not self.spoke(agent) else []
        return "\n".join([*asked, *(f"{message.sender}: {message.text}" for message in unread)])

    def route(self, state: Quest, agent: str, text: str) -> str:
        """By the router's first word; a searcher without results searches, a silent one hands back."""
        if agent == "router":
            search = not _answers(text) and state.searches < self.searches and "searcher" not in self.absent
            return "searcher" if search else "user" if "answerer" in self.absent else "answerer"
        if agent == "searcher":
            return "router" if not text or any(m.sender == "search" for m in self.unread(agent)) else "search"
        return "user"

    def hear(self, state: Quest, message: Message) -> Quest | Heard:
        """Run a search, count the searcher's errands, keep what the user is told."""
        if "search" in message.to:
            return self._search(state, message.text)
        if "searcher" in message.to:
            if state.searches >= self.searches:
                return Heard(state, "No search is left: write @answerer and what you know.", valid=False)
            return replace(state, searches=state.searches + 1)
        return replace(state, said=message.text) if "user" in message.to else state

    def _search(self, state: Quest, query: str) -> Heard:
        if query.lstrip().startswith("{") or not re.search(r"\w", query):
            return Heard(state, "The call holds no query: write @search and some words.", valid=False)
        return Heard(state, " ".join(search(state.documents, query, self.top)) or "Nothing found.")

    def score(self, state: Quest) -> float:
        """Whether the user was told the answer."""
        return find_scorer(state.scorer)(final(state.said), {"answer": state.answer})

    def may_answer(self, agent: str) -> bool:
        """Only the answerer."""
        return agent == "answerer"

    def gold(self) -> str:
        """The right answer."""
        return str(self._board.state.answer)

    def gold_facts(self) -> tuple[str, ...]:
        """The facts that support it, in order."""
        facts: tuple[str, ...] = self._board.state.facts
        return facts

    @staticmethod
    def expert(request: Request) -> str:
        """Look up the next missing fact of the chain, hand on what was found, answer from it.

        Raises:
            UserError: a question that is not of the generated kind.
        """
        known = "\n".join(request.heard)
        if request.agent == "searcher":
            sender, _, text = request.prompt.rpartition("\n")[2].partition(": ")
            return text if sender == "search" else f"@search {text.removeprefix('search ')}"
        relations, entity = _asked(known)
        facts = []
        for relation in relations:
            found = re.search(rf"\b{entity} {relation} (\w+)\.", known)
            if found is None:
                return f"search {entity} {relation}" if request.agent == "router" else "unknown"
            facts.append(found[0])
            entity = found[1]
        return f"answer {' '.join(facts)}" if request.agent == "router" else entity

    @staticmethod
    def fumbles(request: Request) -> Sequence[str]:
        """Answer too early, report nothing, or answer with another city."""
        wrong = {"router": ["answer"], "searcher": ["@router Nothing found."]}
        return wrong.get(request.agent, ["Atlantis", "Camelot", "Utopia"])


def search(documents: tuple[str, ...], query: str, top: int) -> list[str]:
    """The best documents for a query by BM25, those that share no word with it left out."""
    words = bm25s.tokenize([query], stopwords=None, show_progress=False)
    found, scores = _index(documents).retrieve(words, k=min(top, len(documents)), show_progress=False)
    return [documents[i] for i, score in zip(found[0], scores[0], strict=True) if score > 0]


@lru_cache(maxsize=256)
def _index(documents: tuple[str, ...]) -> bm25s.BM25:
    """Built once a knowledge base."""
    index = bm25s.BM25()
    index.index(bm25s.tokenize(list(documents), stopwords=None, show_progress=False), show_progress=False)
    return index


def _generate(rng: np.random.Generator, hops: int, size: int) -> Quest:
    """A knowledge base of ``size`` entities a kind, each with one fact, and a question about the first person."""
    kinds = [list(map(str, rng.permutation(names)[:size])) for names in ENTITIES]
    follows = [rng.integers(size, size=size) for _ in CHAIN]
    facts = [
        [f"{one} {relation} {after[follow[i]]}." for i, one in enumerate(here)]
        for (relation, _), here, after, follow in zip(CHAIN, kinds, kinds[1:], follows, strict=False)
    ]
    at, needed = 0, []
    for hop in range(hops):
        needed.append(facts[hop][at])
        at = int(follows[hop][at])
    every = [fact for kind in facts for fact in kind]
    documents = tuple(every[i] for i in rng.permutation(len(every)))
    return Quest(CHAIN[hops - 1][1].format(kinds[0][0]), kinds[hops][at], tuple(needed), documents)


def _answers(text: str) -> bool:
    """Whether a router's text says "answer" before any "search"."""
    word = re.search(r"(?i)\b(answer|search)", text)
    return word is not None and word[1].lower() == "answer"


def _asked(known: str) -> tuple[list[str], str]:
    """The relations to follow, and the entity to begin with."""
    for hop, (_, question) in enumerate(CHAIN):
        asked = re.search(re.escape(question).replace(r"\{\}", r"(\w+)"), known)
        if asked:
            return [relation for relation, _ in CHAIN[: hop + 1]], asked[1]
    raise UserError("no expert knows this kind of question; use the generated knowledge base, or another policy")
