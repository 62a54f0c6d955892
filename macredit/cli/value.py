"""``macredit value``: who is worth what in a cooperative game, from a table, from a scoring command, or from a log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from macredit.cli.games import FREE, Estimates, Spending, source_of
from macredit.cli.options import Json
from macredit.cli.screen import say, show
from macredit.errors import UserError

if TYPE_CHECKING:
    from macredit.values.game import Game
    from macredit.values.indices import Index
    from macredit.values.session import Estimate


def value(
    file: Path | None = None,
    /,
    *,
    index: str = "shapley,banzhaf,loo",
    game: str = "",
    players: str = "",
    structure: Path | None = None,
    weights: str = "",
    spending: Spending = FREE,
    plot: Path | None = None,
    export: Path | None = None,
    json_: Json = False,
) -> None:
    """Values of a cooperative game: exactly from a table, or estimated from the scores of a command of your own.

    Args:
        file: A table of all worths: .json ({"players": ["a", "b"], "worths": {"": 0, "a": 1, "b": 1, "a,b": 3}} or
            {"n": 3, "table": [2**n numbers]}), .csv, .npy or .parquet.
        index: Indices, with commas: shapley, banzhaf, loo, loi, beta:16:1, weighted, owen, owen-banzhaf, myerson,
            position, precedence, sii, k-sii, stii, fsii, bii, moebius, least-core, nucleolus, prenucleolus. A
            budget is spent for the first.
        game: A command that scores a coalition, such as 'python score.py {coalition}'; it gets the players that are
            present with commas and as JSON on standard input, and prints one number. No shell reads it; a command that
            is itself a shell, sh -c '… {coalition}', runs what odd names say: let it take them from standard input.
        players: Their names, with commas.
        structure: A JSON file with edges, unions or precedence.
        weights: For `weighted`: a=2,b=1.
        plot: A picture: .svg, .png, .pdf or .html, with the extra `report`.
        export: The scores of the log as a table: .parquet, with the extra `tables`; `--log` reads it again.
        json_: Print one JSON object and nothing else.
    """
    from macredit.progress import compiling
    from macredit.values.indices import index_of
    from macredit.values.structure_file import read_structure

    names = [name.strip() for name in index.split(",")]
    who, estimates_of, worths = source_of(file, game, players, spending)
    shape = read_structure(structure, who) if structure else None
    heavy = _weights(weights)
    indices = [index_of(name, who, shape, heavy) for name in dict.fromkeys(names)]
    if heavy is not None and "weighted" not in names:
        raise UserError(f"--weights was given, but the indices are {index}; leave it out, or ask for 'weighted'")
    if shape is not None and not any(index.structure for index in indices):
        raise UserError(f"--structure was given, and none of {index} uses it; leave it out, or ask for one that does")
    _check_files(plot, export, spending.log)
    with compiling():
        found = estimates_of(indices)
        core = _core(worths, found)
    written = _write_files(plot, export, spending.log, indices, found)
    if json_:
        print(json.dumps({**_json(indices, found), **({"core": core} if core else {})}))
    else:
        _show(indices, found, core)
    for line in written:
        say(line)


def _weights(text: str) -> dict[str, float] | None:
    if not text:
        return None
    try:
        pairs = [(name.strip(), float(number)) for name, number in (word.split("=") for word in text.split(","))]
    except ValueError:
        raise UserError(f"the weights are {text!r}; expected NAME=NUMBER with commas, such as a=2,b=1") from None
    if len(dict(pairs)) < len(pairs):
        raise UserError(f"the weights are {text!r}; expected one for each player, not two")
    return dict(pairs)


def _check_files(plot: Path | None, export: Path | None, log: Path | None) -> None:
    """Refuses files that could not be written, before anything is spent.

    Raises:
        UserError: another form of file, a missing extra, or a table of scores without a log.
    """
    if plot is not None:
        from macredit.report.value_plot import check_plot

        check_plot(plot)
    if export is not None:
        from macredit.values.log_table import check_export

        check_export(export)
        if log is None:
            raise UserError(f"--export {export} was given without a log; give the log to copy as --log FILE")


def _write_files(
    plot: Path | None, export: Path | None, log: Path | None, indices: Sequence[Index], found: Estimates
) -> list[str]:
    """Writes the picture and the table of scores; what to say about each once the values are shown."""
    written = []
    if plot is not None:
        from macredit.report.value_plot import save_value_plot

        save_value_plot(plot, indices, found)
        written.append(f"picture: {plot}")
    if export is not None and log is not None:
        from macredit.values.log import read_log
        from macredit.values.log_table import write_parquet

        write_parquet(read_log(log), export)
        written.append(f"scores: {export}")
    return written


# -- what people see ---------------------------------------------------------------------------------------------------


def _core(worths: Game | None, found: Estimates) -> dict[str, Any]:
    """Whether the core is empty, and which shares are in it; only where `least-core` was asked for.

    Shares of the least core are among them, and those are in the core unless it is empty.
    """
    if "least-core" not in found or worths is None:
        return {}
    from macredit.values.core import in_core, least_core

    n = len(worths.players)
    inside = [
        name for name, estimate in found.items() if len(estimate.values) == n and in_core(worths, estimate.values)
    ]
    return {"excess": least_core(worths).excess, "empty": not inside, "inside": inside}


def _json(indices: Sequence[Index], found: Estimates) -> dict[str, Any]:
    first = found[indices[0].name]
    return {
        "players": list(indices[0].players),
        "values": {i.name: _nested(i, found[i.name].values) for i in indices},
        "stderr": {i.name: _nested(i, found[i.name].stderr) for i in indices},
        "intervals": {i.name: _nested(i, found[i.name].interval()) for i in indices},
        "labels": {i.name: i.labels for i in indices if i.labels != list(i.players)},
        "evaluations": first.evaluations,
        "distinct": first.distinct,
        "method": first.method,
        "why": first.why,
    }


def _nested(index: Index, numbers: Any) -> Any:
    """Lists of numbers, a square for pairs; null for what was not estimated."""
    from macredit.values.indices import PAIRS

    n = len(index.players)
    shaped = numbers.reshape(n, n, *numbers.shape[1:]) if index.name in PAIRS else numbers
    return np.where(np.isfinite(shaped), shaped.astype(object), np.array(None)).tolist()


def _show(indices: Sequence[Index], found: Estimates, core: Mapping[str, Any]) -> None:
    from macredit.report.text import safe

    first = found[indices[0].name]
    per_player = [index for index in indices if index.labels == list(index.players)]
    others = [index for index in indices if index not in per_player]
    show(f"{len(indices[0].players)} players, {first.evaluations:,} evaluations ({first.method}: {first.why})")
    if per_player:
        table = Table("player")
        for index in per_player:
            table.add_column(index.name, justify="right", no_wrap=True)
        cells = [_cells(found[index.name]) for index in per_player]
        for name, *row in zip(indices[0].players, *cells, strict=True):
            table.add_row(safe(name), *row)
        show(table)
    for index in others:
        table = Table(index.name, "value")
        for label, cell in _once(index, zip(index.labels, _cells(found[index.name]), strict=True)):
            table.add_row(safe(label), cell)
        show(table)
    if any((estimate.stderr > 0).any() for estimate in found.values()):
        say("±: half of a 95 % interval")
    if any(np.isnan(estimate.stderr).any() for estimate in found.values()):
        say("no interval where none could be estimated: a coalition has to be scored twice, and the index be linear")
    if core:
        state = "empty" if core["empty"] else "not empty"
        inside = f"; in it: {', '.join(core['inside'])}" if core["inside"] else ""
        say(f"the core is {state} (least excess {core['excess']:.6g}){inside}")


def _once(index: Index, rows: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """A symmetric square shows each pair once."""
    from macredit.values.indices import PAIRS

    n, every = len(index.players), list(rows)
    return [row for k, row in enumerate(every) if k // n <= k % n] if index.name in PAIRS else every


def _cells(estimate: Estimate) -> list[str]:
    """Each value, with half of its 95 % interval where that is known."""
    half = estimate.interval()[:, 1] - estimate.values
    return [
        f"{number:.3f} ± {width:.3f}" if width > 0 else f"{number:.6g}"
        for number, width in zip(estimate.values, half, strict=True)
    ]
