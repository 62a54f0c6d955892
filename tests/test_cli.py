"""The command line, as others script against it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from macredit.cli import main
from macredit.episode import read_episodes

GOLDEN = Path(__file__).parent / "golden" / "advantages.json"


def episodes_file(folder: Path, *episodes: dict[str, Any]) -> str:
    path = folder / "episodes.jsonl"
    path.write_text("".join(json.dumps(e) + "\n" for e in episodes), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("played") / "e.jsonl"
    words = [
        "play",
        "coalition_v0",
        "--policy",
        "scripted:noisy:0.8",
        "--arg",
        "preset=or",
        "-n",
        "16",
        "-o",
        str(path),
    ]
    assert main(words) == 0
    return str(path)


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(list(words)) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.strip().split("\n")
    assert len(lines) == 1
    return lines[0]


def test_playing_twice_with_one_seed_writes_the_same_file(tmp_path: Path, played: str) -> None:
    again = str(tmp_path / "again.jsonl")
    main(["play", "coalition_v0", "--policy", "scripted:noisy:0.8", "--arg", "preset=or", "-n", "16", "-o", again])
    assert Path(again).read_bytes() == Path(played).read_bytes()
    assert [e.id for e in read_episodes(again)][:2] == ["t0-0", "t0-1"]


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("grpo_code", ["--method", "grpo", "--preset", "code"]),
        ("dr_mas_code", ["--method", "dr_mas", "--preset", "code"]),
        ("dr_mas_code_no_std", ["--method", "dr_mas", "--preset", "code", "--set", "scale=none"]),
        ("rloo_agentwise_code", ["--method", "rloo", "--preset", "code", "--set", "group=agent"]),
    ],
)
@pytest.mark.parametrize("case", [0, 1])
def test_credit_reproduces_the_released_codes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: int, column: str, words: list[str]
) -> None:
    golden = json.loads(GOLDEN.read_text())["cases"][case]
    path = episodes_file(tmp_path, *golden["episodes"])
    got = printed(capsys, "credit", path, *words, "--json")
    assert [t["advantage"] for t in got["turns"]] == pytest.approx(golden["expected"][column], abs=1e-6)
    assert set(got) >= {"method", "preset", "settings", "turns", "agents", "links", "cost", "warnings"}


def test_a_c3_tree_written_as_eight_episodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rewards = {"A": [1, 0, 0, 1], "B": [0, 0, 1, 0]}  # golden/worked.json, c3_provider
    tree = [
        {
            "id": f"{i}{j}", "task": "q", "reward": r,
            "turns": [{"id": f"q/{i}", "agent": "lead", "text": i}, {"id": f"q/{i}/{j}", "agent": "act", "text": "x"}],
        }
        for i, leaves in rewards.items()
        for j, r in enumerate(leaves)
    ]  # fmt: skip
    got = printed(capsys, "credit", episodes_file(tmp_path, *tree), "--method", "c3", "--json")["turns"]
    assert [t["advantage"] for t in got[0:8:2]] == pytest.approx([0.25] * 4)
    assert [t["advantage"] for t in got[8::2]] == pytest.approx([-0.25] * 4)
    assert [t["advantage"] for t in got[1:8:2]] == pytest.approx([2 / 3, -2 / 3, -2 / 3, 2 / 3])
    assert [t["advantage"] for t in got[9::2]] == pytest.approx([-1 / 3, -1 / 3, 1.0, -1 / 3])
    assert [t["weight"] for t in got[0::2]] == [1, 0, 0, 0, 1, 0, 0, 0]


def test_sharp_from_recorded_counterfactuals_without_an_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def episode(i: int, reward: float, without: float) -> dict[str, Any]:
        turns = [{"agent": "p", "text": "go", "to": ["w"]}, {"agent": "w", "text": "x", "to": ["p"]}]
        seen = [{"silenced": ["w"], "reward": without}]
        return {"id": f"e{i}", "task": "t", "reward": reward, "turns": turns, "counterfactuals": seen}

    path = episodes_file(tmp_path, episode(0, 1, 0), episode(1, 1, 1))
    got = printed(capsys, "credit", path, "--method", "sharp", "--json")
    # worker: credit 1 and 0, Rbar = .9 + .9·credit + .1; planner: credit mean max(credit, 0) = 1 and 0
    assert [t["credit"] for t in got["turns"]] == [1.0, 1.0, 0.0, 0.0]
    assert [t["advantage"] for t in got["turns"]] == pytest.approx([1, 1, -1, -1], abs=1e-5)
    unknown = episodes_file(tmp_path, {**episode(0, 1, 0), "counterfactuals": []})
    assert "'e0'" in refused(capsys, "credit", unknown, "--method", "sharp")
    assert "['w']" in refused(capsys, "credit", unknown, "--method", "sharp")


def test_two_redundant_specialists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, words = str(tmp_path / "or.jsonl"), ["--policy", "scripted:perfect"]
    main(["play", "coalition_v0", "--arg", "preset=or", *words, "-n", "2", "-o", path])
    sharp = printed(capsys, "credit", path, "--method", "sharp", *words, "--json")
    shapley = printed(capsys, "credit", path, "--method", "shapley", *words, "--json")
    assert {a["agent"]: a["credit"] for a in sharp["agents"] if a["agent"] != "planner"} == {"a": 0, "b": 0}
    assert {a["agent"]: a["credit"] for a in shapley["agents"]} == {"planner": None, "a": 0.5, "b": 0.5}
    assert any("redundant" in w for w in sharp["warnings"])
    everyone = printed(capsys, "credit", path, "--method", "shapley", "--players", "all", *words, "--json")
    found = {a["agent"]: a["credit"] for a in everyone["agents"]}
    assert found == pytest.approx({"planner": 2 / 3, "a": 1 / 6, "b": 1 / 6})


def test_measure_writes_every_form_of_the_report(
    tmp_path: Path, played: str, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "r.html"
    got = printed(capsys, "measure", played, "--policy", "scripted:noisy:0.8", "-o", str(page), "--json")
    assert {"grpo", "sharp", "shapley", "position"} <= {m["name"] for m in got["methods"] if m["error"] is None}
    # the planner calls a with .8, then b with .8 again, and each helps with .8: v(a) = .64, v(b) = .512 and
    # v(ab) = .16 · .8 + .64 · .96 = .7424; a: ½ · .64 + ½ · (.7424 − .512)
    assert got["exact"]["shapley"] == pytest.approx({"a": 0.4352, "b": 0.3072})
    assert "<html" in page.read_text()
    logged = printed(capsys, "measure", played, "-o", str(tmp_path / "r.txt"), "--json")
    errors = {m["name"]: m["error"] for m in logged["methods"]}
    assert errors["grpo"] is None
    assert "give --env and --policy" in errors["shapley"]
    assert main(["report", played, "-o", str(tmp_path / "again.html")]) == 0


def test_replayed_outcomes_are_recorded_and_asked_again_without_a_world(
    tmp_path: Path, played: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = str(tmp_path / "kept.jsonl")
    words = ["--method", "shapley", "--replicates", "2"]
    live = printed(
        capsys, "credit", played, *words, "--policy", "scripted:noisy:0.8", "--record", kept, "--json"
    )  # fmt: skip
    logged = printed(capsys, "credit", kept, *words, "--json")
    assert logged["turns"] == live["turns"]
    assert logged["agents"] == live["agents"]
    assert (live["cost"]["replays"] > 0, logged["cost"]["replays"]) == (True, 0)


def test_what_the_record_cannot_keep_is_said(tmp_path: Path, played: str, capsys: pytest.CaptureFixture[str]) -> None:
    kept = str(tmp_path / "kept.jsonl")
    words = ["credit", played, "--method", "shapley", "--set", "over=turns", "--policy", "scripted:noisy:0.8"]
    assert main([*words, "--record", kept]) == 0
    assert "are not in the record: it holds those without agents alone" in " ".join(capsys.readouterr().err.split())
    assert main(["credit", kept, "--method", "shapley", "--set", "over=turns"]) == 2
    assert "a record holds outcomes without agents alone" in " ".join(capsys.readouterr().err.split())


def test_value_of_both_forms_of_a_game(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    glove = tmp_path / "glove.json"
    worths = {"": 0, "l": 0, "r": 0, "s": 0, "l,r": 1, "l,s": 1, "r,s": 0, "l,r,s": 1}
    glove.write_text(json.dumps({"players": ["l", "r", "s"], "worths": worths}))
    got = printed(capsys, "value", str(glove), "--index", "shapley,banzhaf,loo", "--json")
    assert got["players"] == ["l", "r", "s"]
    assert got["values"]["shapley"] == pytest.approx([2 / 3, 1 / 6, 1 / 6])
    assert got["values"]["loo"] == [1, 0, 0]
    assert got["stderr"]["shapley"] == [0, 0, 0]
    assert got["evaluations"] == 8
    glove.write_text(json.dumps({"n": 2, "table": [0, 1, 1, 1]}))
    assert printed(capsys, "value", str(glove), "--json")["values"]["shapley"] == [0.5, 0.5]
    assert main(["value", str(glove)]) == 0


def test_bad_games_and_indices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    game = tmp_path / "g.json"
    game.write_text(json.dumps({"n": 2, "table": [0, 1, 1]}))
    assert "4" in refused(capsys, "value", str(game))
    game.write_text(json.dumps({"n": 2, "table": [0, 1, 1, 1]}))
    assert "Did you mean 'shapley'" in refused(capsys, "value", str(game), "--index", "shaply")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["credit", "FILE", "--method", "grpu"], "unknown method 'grpu'.*Did you mean 'grpo'"),
        (["credit", "FILE", "--method", "m_grpo", "--preset", "code"], "no preset 'code'; expected one of paper"),
        (["credit", "FILE", "--method", "grpo", "--set", "ddof=2"], "ddof"),
        (["credit", "FILE", "--method", "grpo", "--set", "eps=-1"], "'eps' of grpo is -1.0; expected at least 0"),
        (["credit", "FILE", "--method", "grpo", "--set", "ddof"], "expected KEY=VALUE"),
        (["credit", "FILE", "--method", "c3", "--set", "variant=value_assisted"], "critic"),
        (["credit", "FILE", "--method", "sharp"], "give --env and --policy"),
        (["credit", "none.jsonl", "--method", "grpo"], "cannot be read"),
        (["play", "relay_v1", "--policy", "scripted:perfect"], "'relay_v1'.*Did you mean 'relay_v0'"),
        (["play", "relay_v0"], "add --policy a0=KIND"),
        (["play", "relay_v0", "--policy", "scripted:perfct"], "Did you mean 'perfect'"),
        (["play", "relay_v0", "--policy", "a0=llama"], "unknown kind of policy"),
        (["play", "relay_v0", "--policy", "scripted:perfect", "--arg", "lenght=3"], "lenght"),
        (["play", "relay_v0", "--policy", "scripted:perfect", "-n", "0"], "at least 1"),
        (["compare", "coalition_v0", "--policy", "scripted:perfect", "--methods", "shapley", "--budget", "4"],
         "a budget of 4 terminal evaluations is too small for shapley with 3 players; expected at least 16"),
        (["train", "--env", "relay_v0", "--policy", "scripted:perfect"], "cannot learn: it has no log-probabilities"),
        (["train", "none.toml"], "cannot be read"),
        (["train"], "no environment was named"),
        (["train", "--resume", "nowhere"], "cannot be read"),
        (["check", "env", "relay"], "unknown environment"),
        (["check", "method", "grop"], "unknown method"),
        (["play"], "--env requires an argument"),
        (["credit", "FILE", "--method", "grpo", "--absence", "gone"], "gone"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence_and_status_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    played: str, words: list[str], said: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    line = refused(capsys, *(played if word == "FILE" else word for word in words))
    assert re.search(said, line), line


def test_files_without_a_reward_or_without_siblings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    turns = [{"agent": "a", "text": "x"}]
    bare = episodes_file(tmp_path, {"id": "e", "task": "t", "turns": turns})
    assert "none of 1 episodes has a reward" in refused(capsys, "credit", bare, "--method", "grpo")
    alone = episodes_file(tmp_path, {"id": "e", "task": "t", "turns": turns, "reward": 1})
    assert "c3" in refused(capsys, "credit", alone, "--method", "c3")


def test_outside_failures_are_status_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    out = str(tmp_path / "file" / "e.jsonl")
    assert main(["play", "relay_v0", "--policy", "scripted:perfect", "-n", "2", "-o", out]) == 3
    assert "cannot be written" in capsys.readouterr().err


def test_failed_rollouts_are_counted_in_the_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = {"id": "e0", "task": "t", "reward": 1, "turns": [{"agent": "a", "text": "x"}]}
    bad = {"id": "e1", "task": "t", "end": "failed:tool", "error": "timeout", "turns": [{"agent": "a", "text": "y"}]}
    path = episodes_file(tmp_path, good, {**good, "id": "e2", "reward": 0}, bad)
    got = printed(capsys, "credit", path, "--method", "grpo", "--json")
    last = got["turns"][-1]
    assert (last["credit"], last["advantage"], last["weight"], last["reason"]) == (None, 0, 0, "failed:tool")
    assert [t["advantage"] for t in got["turns"][:2]] == pytest.approx([1, -1], abs=1e-5)
    assert got["notes"]["rows left out"] == {"failed": 1}


def test_lists_and_checks(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(printed(capsys, "methods", "--json")) >= {"grpo", "rloo", "dr_mas", "m_grpo", "sharp", "c3"}
    assert main(["envs"]) == 0
    assert "coalition_v0" in capsys.readouterr().out
    assert main(["check", "env", "relay_v0"]) == 0
    for policy in ("x=table:yes,no", "table:yes,no", "scripted:perfect", "scripted:noisy:0.5"):
        assert main(["check", "policy", policy]) == 0
    assert main(["check", "policy", "scripted:perfect", "--env", "coalition_v0", "--arg", "preset=or"]) == 0
    assert main(["check", "method", "grpo"]) == 0


def test_compare_writes_numbers_beside_the_truth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "coalition_v0", "--policy", "scripted:perfect", "--methods", "grpo,sharp,shapley,c3"]
    assert main([*words, "--seeds", "2", "--budget", "32", "-o", str(tmp_path)]) == 0
    found = {c["method"]: c for c in json.loads((tmp_path / "comparison.json").read_text())}
    assert found["shapley"]["agents"] == pytest.approx({"planner": None, "a": 0.5, "b": 0.3, "c": 0.2})
    assert found["shapley"]["error"] == pytest.approx(0, abs=1e-12)
    assert found["shapley"]["fidelity"] == pytest.approx(1)
    assert found["sharp"]["error"] == pytest.approx(0, abs=1e-12)
    # equal budgets: 32 originals; 8 originals with 3 replays each; 4 originals with 7
    assert [found[m]["episodes"] for m in ("grpo", "sharp", "shapley", "c3")] == [32, 8, 4, 32]
    assert found["sharp"]["cost"]["replays"] == 2 * 8 * 3
    assert (tmp_path / "report.html").exists()
    capsys.readouterr()


def test_the_users_own_tasks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps({"question": "What is 3 + 4?", "answer": "7", "scorer": "number"}) + "\n")
    words = ["play", "solve_verify_v0", "--data", str(tasks), "--policy", "solver=scripted:stubborn"]
    words += ["--policy", "scripted:stubborn", "-n", "2", "-o", str(tmp_path / "e.jsonl")]
    assert main(words) == 0
    assert [e.reward for e in read_episodes(tmp_path / "e.jsonl")] == [0.0, 0.0]
    assert (read_episodes(tmp_path / "e.jsonl")[0].env_args or {})["data"] == str(tasks)
    capsys.readouterr()
    assert "data" in refused(capsys, "play", "relay_v0", "--data", str(tasks), "--policy", "scripted:perfect")


def test_compare_trains_for_learning_curves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "coalition_v0", "--policy", "table:help,pass", "--methods", "grpo,sharp", "--seeds", "2"]
    assert main([*words, "--budget", "8", "--steps", "3", "-o", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "comparison.json").read_text())
    assert [len(c["curve"]) for c in found] == [3, 3]
    assert "last step" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "explained"),
    [
        ("demo", "Draws tasks and replies"), ("play", "How many episodes"), ("credit", "An episodes file"),
        ("measure", "Print the report as one JSON object"), ("value", "Indices, with commas"),
        ("compare", "Independent repetitions"), ("train", "Its preset"), ("report", "or a run's folder"),
        ("methods", "the table of the README"),
    ],
)  # fmt: skip
def test_help_explains_the_parameters(capsys: pytest.CaptureFixture[str], command: str, explained: str) -> None:
    assert main([command, "--help"]) == 0
    assert explained in " ".join(re.sub("[│╭╮╰╯─]", "", capsys.readouterr().out).split())


FOREIGN = {"id": "a", "task": "t", "turns": [{"agent": "p", "text": "x"}], "reward": 1}


@pytest.mark.parametrize("command", [["measure"], ["report"], ["credit", "--method", "grpo"]])
def test_reading_a_record_runs_no_code_that_it_names(tmp_path: Path, command: list[str]) -> None:
    mark = tmp_path / "run"
    args = {"env": "os:system", "command": f"touch {mark}"}
    path = episodes_file(tmp_path, {**FOREIGN, "env": "wrapped_v0", "env_args": args})
    words = [*command, path] + ([] if command[0] == "credit" else ["-o", str(tmp_path / "r.html")])
    assert main(words) == 0
    assert not mark.exists()


def test_replays_run_no_code_that_only_the_record_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mark = tmp_path / "run"
    for env, args in (("wrapped_v0", {"env": "os:system"}), ("os:system", {})):
        path = episodes_file(tmp_path, {**FOREIGN, "env": env, "env_args": {**args, "command": f"touch {mark}"}})
        error = refused(capsys, "credit", path, "--method", "sharp", "--policy", "scripted:silent")
        assert "'os:system'" in error
        assert "--env" in error
        assert not mark.exists()


def test_names_are_shown_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("[/x]", "[red]a", "\x1b[31m", "\ud800")
    turns = [{"agent": name, "text": "x"} for name in names]
    path = episodes_file(tmp_path, *({**FOREIGN, "id": f"[/e]{i}", "turns": turns, "reward": i} for i in range(2)))
    assert main(["credit", path, "--method", "grpo"]) == 0
    shown = capsys.readouterr().out
    assert "[/x]" in shown
    assert "[red]a" in shown
    assert "\x1b" not in shown
    assert "\ud800" not in shown
    assert main(["credit", path, "--method", "grpo", "--json"]) == 0
    assert capsys.readouterr().out.isascii()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["play", "coalition_v0", "--policy", "scripted:perfect", "--arg", "preset=5"],
            "does not take these arguments",
        ),
        (["play", "os:getcwd", "--policy", "scripted:silent"], "expected module:Class of a TeamEnv"),
        (["play", "coalition_v0", "--policy", "planer=scripted:silent", "scripted:silent"], "Did you mean 'planner'?"),
        (["compare", "coalition_v0", "--policy", "scripted:perfect", "--seeds", "0"], "seeds is 0"),
        (["train", "--env", "coalition_v0", "--policy", "table:help,pass", "--tasks", "0"], "tasks is 0"),
        (["train", "--env", "coalition_v0", "--policy", "table:help,pass", "--steps", "0"], "steps is 0"),
        (["train", "--env", "coalition_v0", "--policy", "table:help,pass", "--rate", "nan"], "rate"),
        (["train", "--env", "coalition_v0", "--policy", "table:help,pass", "--rate", "-1"], "rate is -1.0"),
        (["train", "--env", "coalition_v0", "--policy", "table:help,pass", "--save-every", "-1"], "save_every is -1"),
        (["train", "--env", "coalition_v0", "--policy", "table:help,pass", "--fanout.x", "2"], "fanout is {'x': 2}"),
        (["train", "--env", "coalition_v0", "--policy", "table:help,pass", "--fanout.0", "0"], "fanout is {'0': 0}"),
        (["train", "--env", "coalition_v0", "--policy", "table:help,pass", "--solo"], "or take solve_verify_v0"),
        (["train", "--env", "coalition_v0", "--policy", "table:help,pass", "--lora", "8"], "beside --model"),
        (["train", "--env", "coalition_v0", "--policy", "scriptd:perfect"], "Did you mean 'scripted'?"),
        (["check", "policy", "scriptd:perfect"], "Did you mean 'scripted'?"),
        (["check", "policy", "hff:tiny"], "Did you mean 'hf'?"),
        (["play", "relay_v0", "--policy", "scripted:perfect", "--arg", "lenght=3"], "Did you mean 'length'?"),
        (["train", "--resume", "run", "--steps", "60"], "leave out what would change it"),
    ],
)
def test_wrong_input_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refused(capsys, *words)


def test_an_agent_that_the_team_lacks_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.toml"
    path.write_text('[env]\nname = "coalition_v0"\n[[agents]]\nname = "planer"\n')
    said = refused(capsys, "train", str(path))
    assert "unknown agent 'planer'" in said
    assert "Did you mean 'planner'?" in said


def test_a_flag_counts_even_where_it_says_the_default(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(
        '[env]\nname = "coalition_v0"\n[policies."*"]\nkind = "table"\nreplies = ["help", "pass"]\n'
        "[train]\nsteps = 2\ntasks = 1\ngroup = 2\nseed = 7\nevaluate_tasks = 0\n"
    )
    assert main(["train", str(path), "--seed", "0", "-o", str(tmp_path / "run")]) == 0
    run = json.loads((tmp_path / "run" / "config.json").read_text())["train"]
    assert (run["seed"], run["steps"], run["tasks"]) == (0, 2, 1)


def test_a_disk_that_is_full_is_an_outside_failure(capsys: pytest.CaptureFixture[str]) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    assert main(["play", "relay_v0", "--policy", "scripted:perfect", "-n", "1", "-o", "/dev/full"]) == 3
    assert "No space left" in capsys.readouterr().err
