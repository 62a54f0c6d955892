"""Where the worths of ``macredit value`` come from: a file, a scoring command with its budget, or a log."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from cyclopts import Parameter

from macredit.cli.screen import say
from macredit.errors import OutsideError, UserError

if TYPE_CHECKING:
    from macredit.values.game import Game
    from macredit.values.indices import Index
    from macredit.values.session import Estimate

Flag = Annotated[bool, Parameter(negative="")]
Estimates = dict[str, "Estimate"]


class Source(NamedTuple):
    """Where worths come from."""

    players: tuple[str, ...]
    estimates_of: Callable[[Sequence[Index]], Estimates]
    table: Game | None = None
    """All worths, where a file holds them."""


@Parameter(name="*")
@dataclass(frozen=True)
class Spending:
    """What a scoring command may cost, and where its scores are kept."""

    budget: int | None = None
    """The most evaluations of the command."""
    replicates: int | None = None
    """The same as so many evaluations for each coalition on average."""
    accuracy: float | None = None
    """The same as what a standard error of this size costs on 0/1 scores."""
    deterministic: Flag = False
    """The command always gives a coalition the same score: each is scored once, and the values are exact."""
    tasks: int | None = None
    """How many tasks the command has, numbered from 0; by default each gets a number of its own."""
    seed: int = 0
    """Draws which coalition is scored how often, and the seeds given to the command."""
    log: Path | None = None
    """Keep every score here: a rerun makes none twice, and without --game every index is read from it."""
    workers: int = 1
    """Evaluations at a time; the result does not depend on it."""
    timeout: float = 600.0
    """Seconds one evaluation may take."""

    def options(self) -> list[str]:
        """What was asked for, but the log."""
        given = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        return [f"--{name}" for name in given if name != "log"]


FREE = Spending()
MOST_OF_A_COMMAND = 2**24
"""Evaluations; more take weeks."""


def source_of(file: Path | None, game: str, players: str, spending: Spending) -> Source:
    """The players, and how their indices are estimated.

    Raises:
        UserError: none or several of a file, a command and a log.
    """
    if (file is not None) + bool(game) > 1:
        raise UserError("a file and --game were given; expected one of them")
    if file is not None:
        return _from_file(file, players, spending)
    if game:
        return _from_command(game, players, spending)
    if spending.log is not None:
        return _from_log(spending.log, players, spending)
    raise UserError("no game was given; give a file of worths, --game 'COMMAND {coalition}', or --log FILE")


def _from_file(file: Path, players: str, spending: Spending) -> Source:
    from macredit.values.game_file import read_game_file
    from macredit.values.session import Estimate

    if spending != FREE:
        unused = ", ".join([*spending.options(), *(["--log"] if spending.log else [])])
        raise UserError(f"a file of worths costs nothing to read; leave out {unused}, which are for --game")
    read = read_game_file(file)
    given = _names(players) if players else read.players
    if len(given) != len(read.players):
        raise UserError(f"{len(given)} players were named; {file} has {len(read.players)}")
    table = read._replace(players=given)

    def exactly(indices: Sequence[Index]) -> Estimates:
        size, found = len(table.table), {}
        for index in indices:
            values = np.asarray(index.read(table), np.float64).ravel()
            why = "every worth is known"
            found[index.name] = Estimate(values, np.zeros(len(values)), size, size, "exact", why, np.inf)
        return found

    return Source(given, exactly, table)


def _from_log(path: Path, players: str, spending: Spending) -> Source:
    from macredit.values.log import read_log
    from macredit.values.scoring import values_from_log

    if unused := [*(["--players"] if players else []), *spending.options()]:
        raise UserError(f"a log is only read without --game; leave out {', '.join(unused)}, or give --game")
    with _warnings():
        log = read_log(path)
    return Source(log.players, lambda indices: {index.name: values_from_log(log, index) for index in indices})


def _from_command(command: str, players: str, spending: Spending) -> Source:
    from macredit.values.command import CommandGame

    if not players:
        raise UserError("--game needs the names of the players; give --players a,b,c")
    who = _names(players)
    for name in ("budget", "replicates", "tasks"):
        if (number := getattr(spending, name)) is not None and number < 1:
            raise UserError(f"--{name} {number} was given; expected at least 1")
    scorer = CommandGame(command, who, spending.timeout, spending.workers)

    def scored(indices: Sequence[Index]) -> Estimates:
        from macredit.progress import progress
        from macredit.values.log import LogFile
        from macredit.values.scoring import Scoring

        budget = _budget(indices, spending)
        settings = {"game": command, "tasks": spending.tasks}
        with _warnings():
            keep = contextlib.nullcontext(None) if spending.log is None else LogFile(spending.log, who, settings)
        with keep as log, progress("scoring", budget) as tick, _kept(log):
            noise = not spending.deterministic
            scoring = Scoring(who, scorer, spending.seed, spending.tasks, noise, log, tick)
            return scoring.estimates(indices, budget)

    return Source(who, scored)


def _budget(indices: Sequence[Index], spending: Spending) -> int:
    """How many evaluations may be made; says what they buy before any is."""
    ways = [spending.budget, spending.replicates, spending.accuracy]
    if sum(way is not None for way in ways) > 1:
        raise UserError("more than one of --budget, --replicates and --accuracy was given; expected one")
    once = max(index.needs for index in indices)
    if spending.deterministic and (spending.replicates is not None or spending.accuracy is not None):
        raise UserError("--deterministic scores each coalition once; leave out --replicates and --accuracy")
    budget = (spending.budget or once) if spending.deterministic else _noisy_budget(indices, spending, once)
    if budget > MOST_OF_A_COMMAND:
        raise UserError(
            f"{budget:,} evaluations were asked for; expected at most {MOST_OF_A_COMMAND:,}: give --budget N"
        )
    if budget >= once and not spending.deterministic:
        error = 0.01 * (_pricing(indices, once)(0.01) / budget) ** 0.5
        say(f"{budget:,} evaluations of {once:,} coalitions; on 0/1 scores expect standard errors near {error:.2g}")
    return budget


def _noisy_budget(indices: Sequence[Index], spending: Spending, once: int) -> int:
    """From whichever option says it; without any, what it would cost."""
    if spending.budget is not None:
        return spending.budget
    if spending.replicates is not None:
        return spending.replicates * once
    price = _pricing(indices, once)
    if spending.accuracy is not None:
        return price(spending.accuracy)
    costs = ", ".join(f"{price(accuracy):,} for {accuracy}" for accuracy in (0.1, 0.05, 0.02))
    raise UserError(
        f"no budget was given, so nothing was run. {indices[0].name} has {once:,} coalitions; on 0/1 scores a "
        f"standard error costs about this many evaluations: {costs}. Give --budget N or --accuracy A, or "
        "--deterministic if a coalition always gets the same score"
    )


def _pricing(indices: Sequence[Index], once: int) -> Callable[[float], int]:
    """Accuracy → evaluations, for the first index; each of few coalitions is scored at least once."""
    from macredit.values.price import price, price_of
    from macredit.values.scoring import MOST_SCORED, needed

    if once <= MOST_SCORED:
        matrix = needed(indices).matrix
        return lambda accuracy: max(price_of(matrix, accuracy).evaluations, once)
    return lambda accuracy: price(len(indices[0].players), accuracy).evaluations


@contextlib.contextmanager
def _warnings() -> Iterator[None]:
    """Warnings of the library in words for people."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        say(f"warning: {warning.message}")


@contextlib.contextmanager
def _kept(log: Any) -> Iterator[None]:
    """Says after a failure what is kept."""
    try:
        yield
    except OutsideError as error:
        kept = (
            f"{len(log.known):,} scores are kept in {log.path}: the same command goes on from there"
            if log
            else ("earlier scores are lost; --log FILE keeps them")
        )
        raise OutsideError(f"{error}. {kept}") from None


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if "" in names or len(set(names)) < len(names):
        raise UserError(f"the players are {text!r}; expected different names with commas between them")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UserError(f"the players are {text!r}, which is not UTF-8; give other names") from None
    return names
