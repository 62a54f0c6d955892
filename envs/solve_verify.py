"""Planner, solver, verifier on problems with a checkable answer; what is known is split, so that talk is needed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from macredit.env import Heard, Message, TeamEnv
from macredit.errors import UserError, missing_extra, unknown
from macredit.policy import Request
from macredit.team import Agent, Team

from .solve_verify_roles import role
from .tasks import Task, final, find_scorer, read_tasks

WRONG = tuple(str(number) for number in range(1000, 1100))
"""What a solver that fumbles answers: numbers, hardly ever the right one."""


@dataclass(frozen=True)
class Work:
    """The problem, who knows what, and how far the team is."""

    task: Task
    question: str
    facts: Mapping[str, tuple[str, ...]]
    """Agent → the facts that it alone is told."""
    answer: str = ""
    """The last solver output."""
    rejections: int = 0


class SolveVerify(TeamEnv):
    """A planner briefs solvers, a verifier approves or rejects; the last solver output is the team's answer.

    Unaddressed text goes planner → solver → (next solver) → verifier; the verifier's goes to the user, or, where it
    says "reject" before any "approve" and a loop is left, back to the first solver. The planner and the verifier are
    told the question; facts are dealt out to all roles in turn. Orchestration of Dr. MAS (arXiv 2602.08847).

    Args:
        dataset: a reasoning-gym data set, scored by its own scorer.
        settings: its settings, such as ``{"min_terms": 2}``.
        data: the user's own tasks instead: JSON Lines of question, answer, perhaps facts (a list) and scorer.
        scorer: for ``data``: exact, number, contains, choice, or ``module:function`` of (answer, task); default exact.
        solvers: how many solvers, one after the other.
        loops: how often the solvers may try.
        told: ``leads`` or ``all``: who is told the question.
        roles: role texts with worked ``examples``, or ``plain``.
        solo: one agent that is told everything (the one-agent baseline).

    Raises:
        UserError: unknown data set, scorer or setting, a bad file, or reasoning-gym is missing.
    """

    name = "solve_verify_v0"

    def __init__(
        self,
        dataset: str = "needle_haystack",
        settings: Mapping[str, Any] | None = None,
        data: str | None = None,
        scorer: str | None = None,
        solvers: int = 1,
        loops: int = 3,
        told: Literal["leads", "all"] = "leads",
        roles: Literal["examples", "plain"] = "examples",
        solo: bool = False,
    ) -> None:
        if solvers < 1 or loops < 1:
            raise UserError(f"{solvers} solvers and {loops} loops were given; expected at least 1 of each")
        for given, choices in ((told, ("leads", "all")), (roles, ("examples", "plain"))):
            if given not in choices:
                raise unknown("choice", given, choices)
        if scorer is not None:
            find_scorer(scorer)
        self.dataset, self.settings, self.scorer = dataset, dict(settings or {}), scorer
        self.loops, self.told = loops, told
        self.tasks = read_tasks(data) if data else None
        self._gym = None if data else _gym(dataset, {**self.settings, "seed": 0, "size": 1})
        self.solvers = ("solver",) if solvers == 1 or solo else tuple(f"solver{i}" for i in range(1, solvers + 1))
        team = Team((Agent("solver"),), "solver") if solo else _team(self.solvers)
        kind = "" if data else dataset
        texts = {name: role(name, kind, roles == "examples", solo) for name in team.names}
        super().__init__(team.casting(texts), max_turns=2 + 2 * (1 + loops * (len(self.solvers) + 1)))

    def begin(self, rng: np.random.Generator) -> Work:
        """Draw a problem and deal out its facts."""
        if self.tasks is not None:
            task = self.tasks[int(rng.integers(len(self.tasks)))]
        else:
            task = _gym(self.dataset, {**self.settings, "seed": int(rng.integers(2**31)), "size": 1})[0]
        question, facts = _parts(task)
        names = self.team.names
        return Work(task, question, {name: tuple(facts[i :: len(names)]) for i, name in enumerate(names)})

    def prompt(self, state: Work, agent: str, unread: Sequence[Message]) -> str:
        """What the agent is told, the first time (the question last: small models stop there); what it was sent."""
        lines = []
        if not self.spoke(agent):
            if state.facts[agent]:
                lines.append(f"Facts: {' '.join(state.facts[agent])}")
            if self.told == "all" or agent not in self.solvers or len(self.team.names) == 1:
                lines.append(f"Question: {state.question}")
        return "\n".join([*lines, *(f"{message.sender}: {message.text}" for message in unread)])

    def route(self, state: Work, agent: str, text: str) -> str:
        """Down the line; the verifier's word decides whether back to the first solver or to the user."""
        if agent == "verifier" and not (self.rejects(text) and state.rejections + 1 < self.loops):
            return "user"
        line = [name for name in self.team.names if name not in self.absent]
        return [*line, "user"][line.index(agent) + 1] if agent != "verifier" else self._first_solver()

    def _first_solver(self) -> str:
        return next((name for name in self.solvers if name not in self.absent), "user")

    def hear(self, state: Work, message: Message) -> Work | Heard:
        """Keep the last solver output, and count rejections."""
        if message.sender in self.solvers:
            return replace(state, answer=message.text or state.answer)
        if message.sender == "verifier" and "user" not in message.to:
            if state.rejections + 1 >= self.loops:
                return Heard(state, "No try is left: write @user and your verdict.", valid=False)
            return replace(state, rejections=state.rejections + 1)
        return state

    def score(self, state: Work) -> float:
        """The scorer's verdict on the last solver output."""
        answer = final(state.answer)
        if self._gym is not None:
            return float(self._gym.score_answer(answer, state.task))
        named = self.scorer or state.task.get("scorer", "exact")
        return float(find_scorer(named)(answer, state.task))

    def may_answer(self, agent: str) -> bool:
        """Only the last in line."""
        return agent == self.team.names[-1]

    def gold(self) -> str:
        """The right answer."""
        return str(self._board.state.task["answer"])

    @staticmethod
    def rejects(verdict: str) -> bool:
        """Whether a verdict says "reject" before any "approve": anything else lets the answer stand."""
        word = re.search(r"(?i)\b(approve|reject)", verdict)
        return word is not None and word[1].lower() == "reject"

    @staticmethod
    def expert(request: Request) -> str:
        """Pass on everything; answer and check as far as one's own conversation tells.

        Raises:
            UserError: a question of a kind that no rule here answers.
        """
        known = "\n".join(request.heard)
        if request.agent == "planner":
            return " ".join(re.findall(r"(?m)^(?:Question|Facts): (.*)$", known))
        answer = _solve(known)
        if request.agent == "verifier":
            said = final(request.prompt.rpartition("solver")[2].partition(": ")[2])
            return "approve" if answer in (said, "unknown") else f"reject. Answer: {answer}"
        if {"verifier", "user"} & set(request.teammates):
            return answer
        return " ".join(line.partition(": ")[2] or line for line in known.split("\n")) + f"\nAnswer: {answer}"

    @staticmethod
    def fumbles(request: Request) -> Sequence[str]:
        """Brief badly, answer wrongly, or give the wrong verdict."""
        if request.agent == "planner":
            return ["Please answer."]
        if request.agent == "verifier":
            return ["approve" if SolveVerify.expert(request).startswith("reject") else "reject"]
        return WRONG


def _team(solvers: Sequence[str]) -> Team:
    line = Team.line(("planner", *solvers, "verifier"))
    briefs = tuple(("planner", name) for name in solvers[1:])
    returns = tuple(("verifier", name) for name in solvers)
    return replace(line, edges=(*line.edges, *briefs, *returns))


def _gym(dataset: str, settings: Mapping[str, Any]) -> Any:
    """A reasoning-gym data set."""
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ImportError:
        raise missing_extra("reasoning_gym", "train") from None
    if dataset not in DATASETS:
        raise unknown("data set", dataset, DATASETS)
    try:
        return reasoning_gym.create_dataset(dataset, **settings)
    except (TypeError, AssertionError, ValueError) as error:
        shown = {name: value for name, value in settings.items() if name not in ("seed", "size")}
        raise UserError(f"data set {dataset!r} does not take the settings {shown}: {error}") from None


def _parts(task: Task) -> tuple[str, Sequence[str]]:
    """The question, and facts that can be dealt out: those of the file, or the statements before the question."""
    whole, question = task["question"], (task.get("metadata") or {}).get("question")
    if isinstance(question, str) and whole.endswith(question):
        return question, re.split(r"(?<=\.)\s+", whole.removesuffix(question).strip())
    return whole, task.get("facts", ())


def _solve(known: str) -> str:
    """The answer as far as the text tells, or ``unknown``."""
    told = [name for name in re.findall(r"Answer: (.+)", known) if name != "unknown"]
    if told:
        return str(told[-1])
    if asked := re.search(r"Who (.+?)\?", known):
        found = re.search(rf"([\w'-]+) {re.escape(asked[1])}\.", known)
        return found[1] if found else "unknown"
    if asked := re.search(r"arithmetic problem: ([\d\s+-]+) =", known):
        terms = re.sub(r"\s", "", asked[1]).replace("--", "+").replace("+-", "-")
        return str(sum(map(int, re.findall(r"[+-]?\d+", terms))))
    if asked := re.search(r'the letter "(.)" appear in the text: "(.*?)"\?', known):
        return str(asked[2].lower().count(asked[1].lower()))
    if "Question: " in known:
        raise UserError(
            f"no expert knows how to answer {known.partition('Question: ')[2][:60]!r}; use the data set "
            "needle_haystack, chain_sum or letter_counting, or another policy"
        )
    return "unknown"
