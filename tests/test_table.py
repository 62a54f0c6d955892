from pathlib import Path

import numpy as np
import pytest

from macredit.agents import Table, make_policy, parse_policy
from macredit.errors import UserError
from macredit.learn import Learner, LearnerConfig, Objective, TrainRow
from macredit.policy import Chat, Request, Said
from macredit.seeds import Key


def asked(group: int, prompt: str = "q", agent: str = "a") -> Request:
    return Request(agent, (Chat("user", prompt),), Key(0, "t", group))


def row(said: Said, advantage: float, sequence: int = 0) -> TrainRow:
    assert said.prompt_ids is not None
    assert said.token_ids is not None
    ids = np.array(said.prompt_ids + said.token_ids)
    logprob = np.array([0, 0, *(said.logprobs or (0.0,))])
    return TrainRow(ids, np.array([False, False, True]), logprob, advantage, 1.0, sequence)


def test_starts_uniform_and_says_what_it_recorded() -> None:
    table = Table(["x", "y", "z", "w"])
    assert table.probabilities("a", "q") == pytest.approx([0.25] * 4)
    said = table.say([asked(g) for g in range(400)])
    assert all(s.logprobs == pytest.approx((np.log(0.25),)) for s in said)
    assert all(s.token_ids is not None and s.text == "xyzw"[s.token_ids[0]] for s in said)
    assert min(sum(s.text == text for s in said) for text in "xyzw") > 70  # expected 100, standard deviation 8.7
    assert [table.say([asked(g)])[0] for g in range(5)] == said[:5]


def test_one_step_follows_the_exact_gradient() -> None:
    table = Table(["x", "y"])
    learner = Learner(table, LearnerConfig(rate=1.0, max_norm=100.0))
    metrics = learner.update([row(table.dictate(asked(0), "x"), 2.0)])  # old log-probability 0: a ratio of ½
    # loss −2ρ, slope −2ρ = −1 per log-probability; d log π(x)/d logits = (½, −½); logits = +1·(½, −½)
    assert table.logits[table.context("a", "q")] == pytest.approx([0.5, -0.5])
    assert metrics["gradient"] == pytest.approx(np.sqrt(0.5))
    assert table.version.endswith(".1")


def test_gradient_equals_finite_differences() -> None:
    rng = np.random.default_rng(0)
    table = Table(["x", "y", "z"])
    table.logits = {table.context("a", p): rng.normal(size=3) for p in ("p", "q")}
    said = table.say([asked(g, "pq"[g % 2]) for g in range(6)])
    rows = [row(s, float(rng.normal()), g) for g, s in enumerate(said)]
    objective = Objective(LearnerConfig(aggregate="seq-mean-token-sum"))

    def value() -> float:
        logp = np.concatenate([lp[r.mask] for lp, r in zip(table.logprobs(rows), rows, strict=True)])
        return objective(logp, objective.tokens(rows)).value

    slopes, before = {}, {context: logits.copy() for context, logits in table.logits.items()}
    for context, logits in table.logits.items():
        for i in range(3):
            up, down = logits.copy(), logits.copy()
            up[i], down[i] = up[i] + 1e-6, down[i] - 1e-6
            table.logits[context] = up
            high = value()
            table.logits[context] = down
            slopes[context, i] = (high - value()) / 2e-6
            table.logits[context] = logits
    table.prepare(LearnerConfig(rate=1.0, max_norm=1e9))
    table.update(rows, objective)
    for (context, i), slope in slopes.items():
        assert before[context][i] - table.logits[context][i] == pytest.approx(slope, abs=1e-8)


def test_learns_a_bandit() -> None:
    table = make_policy({"kind": "table", "replies": [f"r{i}" for i in range(8)]}, name="p")
    assert isinstance(table, Table)
    learner = Learner(table)
    for step in range(30):
        said = table.say([asked(100 * step + g) for g in range(16)])
        reward = np.array([s.text == "r3" for s in said], dtype=float)
        learner.update([row(s, r - reward.mean(), g) for g, (s, r) in enumerate(zip(said, reward, strict=True))])
    assert table.probabilities("a", "q")[3] > 0.8


def test_replies_of_each_agent() -> None:
    table = Table({"a": ["x"], "b": ["y", "z"]})
    assert table.say([asked(0, agent="a")])[0].text == "x"
    assert len(table.probabilities("b", "q")) == 2
    with pytest.raises(UserError, match="agent of the table's replies"):
        table.say([asked(0, agent="c")])
    with pytest.raises(UserError, match="reply of the table"):
        table.dictate(asked(0, agent="a"), "y")


def test_export_is_found_by_its_files(tmp_path: Path) -> None:
    table = Table(["x", "y"])
    Learner(table).update([row(table.say([asked(0)])[0], 1.0)])
    table.export(tmp_path / "solver")
    name, spec = parse_policy(f"solver={tmp_path / 'solver'}")
    again = make_policy(spec, name=name)
    assert isinstance(again, Table)
    assert np.array_equal(again.probabilities("a", "q"), table.probabilities("a", "q"))
    assert again.version != Table(["x", "y"]).version
    with pytest.raises(UserError, match="no exported policy"):
        parse_policy(f"solver={tmp_path}")


def test_settings_it_cannot_follow() -> None:
    with pytest.raises(UserError, match="plain gradient descent"):
        Learner(Table(["x"]), LearnerConfig(schedule="cosine"))


def test_an_export_does_not_depend_on_the_order_in_which_contexts_came(tmp_path: Path) -> None:
    one, two = Table(["a", "b"], name="t"), Table(["a", "b"], name="t")
    for table, prompts in ((one, "xy"), (two, "yx")):
        for prompt in prompts:
            table.logits[table.context("p", prompt)] = np.array([1.0, 2.0])
        table.export(tmp_path / prompts)
    assert (tmp_path / "xy" / "table.json").read_bytes() == (tmp_path / "yx" / "table.json").read_bytes()
