"""What is counted, and what tables of costs show of it."""

import re

from rich.console import Console, RenderableType

from macredit.cli import world_of
from macredit.compare import Compared
from macredit.config import RunConfig
from macredit.credit import credit
from macredit.ledger import Ledger
from macredit.policy import Said
from macredit.report import MethodResult, Report
from macredit.rollout import play, tasks_of
from macredit.rows import rows_of
from macredit.tables import comparison_tables


def said(**usage: int) -> Said:
    return Said("x", usage=usage)


def test_a_reply_is_charged_with_what_it_says() -> None:
    ledger = Ledger()
    assert ledger.cache_hit_rate is None
    ledger.charge(said(prompt=7, sampled=2, cached=4, micros=51))
    ledger.charge(said(prompt=5, sampled=1, micros=30))
    ledger.charge(Said("x"))
    assert (ledger.calls, ledger.prompt_tokens, ledger.prompt_tokens_cached, ledger.sampled_tokens) == (3, 8, 4, 3)
    assert ledger.micros == 81
    assert ledger.cache_hit_rate == 4 / 12


def test_a_ledger_goes_on_from_its_json_and_from_one_without_prices() -> None:
    ledger, again, old = Ledger(), Ledger(), Ledger()
    ledger.charge(said(prompt=7, micros=51))
    again.load(ledger.json())
    assert again == ledger
    old.load({name: value for name, value in ledger.json().items() if name != "micros"})
    assert (old.prompt_tokens, old.micros) == (7, 0)


def shown(table: RenderableType) -> str:
    console = Console(width=160, color_system=None)
    with console.capture() as seen:
        console.print(table)
    return seen.get()


def report(*costs: dict[str, float]) -> Report:
    world = world_of(RunConfig({"name": "relay_v0"}, {"*": {"kind": "scripted", "style": "perfect"}}))
    rows = rows_of(play(world, tasks_of(0, 1, 2)))
    found = [MethodResult("grpo", f"p{n}", {}, credit(rows, "grpo"), cost) for n, cost in enumerate(costs)]
    return Report("costs", tuple(found), rows)


def cells(text: str) -> list[list[str]]:
    """The rows of the table of costs, as words."""
    return [line.split() for line in text[text.rindex("cost") :].splitlines()[1:]]


def test_the_report_shows_the_share_from_the_cache_and_the_price() -> None:
    cost = {"calls": 3, "prompt_tokens": 1200, "prompt_tokens_cached": 800, "micros": 1_234_567, "seconds": 0.0}
    both = report(cost, {"calls": 1, "prompt_tokens": 5, "prompt_tokens_cached": 0, "micros": 0})
    header, one, two, *_ = cells(shown(both.text()))
    assert header == ["model", "calls", "prompt", "tokens", "cached", "price"]
    # 800 of 1,200 + 800 prompt tokens: 40 %
    assert one[2:] == ["3", "1,200", "800", "(40%)", "1.234567"]
    assert two[2:] == ["1", "5", "0", "(0%)", "0.000000"]
    html = both.html()
    assert "<td>800 (40%)</td><td>1.234567</td>" in html
    assert '<th scope="col">price</th>' in html


def test_what_nobody_counted_has_no_column() -> None:
    free = report({"calls": 3, "prompt_tokens": 1200, "micros": 0})
    assert cells(shown(free.text()))[0] == ["model", "calls", "prompt", "tokens"]
    assert not {"price", "cached"} & set(re.findall(r'<th scope="col">(\w+)</th>', free.html()))
    assert report({}).html()


def compared(**cost: int) -> Compared:
    whole = {**Ledger().json(), **cost}
    return Compared("grpo", {"a": 0.5}, {"a": 0.1}, {}, "", error=None, fidelity=None, episodes=4, cost=whole)


def test_a_comparison_shows_the_price_where_there_is_one() -> None:
    assert "price" not in shown(comparison_tables([compared(calls=2)]))
    table = shown(comparison_tables([compared(calls=2, micros=1_234_567), compared()]))
    assert "price" in table
    assert "1.234567" in table
    assert "0.000000" in table
