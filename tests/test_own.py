"""What users bring themselves: their modules are imported where they name them, and nowhere else."""

import json
import sys
from pathlib import Path

import pytest

from macredit.agents import make_policy, parse_policy
from macredit.cli import main
from macredit.episode import read_episodes
from macredit.errors import UserError
from macredit.own import own

PARROT = """
from pathlib import Path
from typing import Literal
from macredit.policy import BatchPolicy, Said

Mood = Literal["calm", "cross"]

class Parrot(BatchPolicy):
    def __init__(self, word="hm", name=""):
        super().__init__(name, sampling={"word": word})

    def say(self, batch):
        return [Said(self.sampling["word"]) for _ in batch]

class Picky(Parrot):
    def __init__(self, word, name=""):
        super().__init__(word, name)

class Strict(Parrot):
    def __init__(self, words: "list[str]", mood: Mood = "calm", where: "Path | None" = None, name: str = ""):
        super().__init__(words[0], name)

class Dreamer(Parrot):
    def __init__(self, word: "Unheard", name: str = ""):
        super().__init__(word, name)

class Stone:
    pass
"""


@pytest.fixture(autouse=True)
def parrot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_parrot.py").write_text(PARROT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "own_parrot", raising=False)


def test_what_is_not_there_is_said() -> None:
    assert own("thing", "json:dumps", "function") is json.dumps
    for name, message in (
        ("no_such:thing", "thing 'no_such:thing' cannot be loaded.*expected module:function"),
        ("json:nothing", "has no attribute 'nothing'"),
        ("json", "it names no function"),
        ("jsno:dumps", "Did you mean 'json'"),
    ):
        with pytest.raises(UserError, match=message):
            own("thing", name, "function", ["json"])


def test_a_policy_of_the_users_own() -> None:
    assert parse_policy("a=own_parrot:Parrot") == ("a", {"kind": "own_parrot:Parrot"})
    made = make_policy({"kind": "own_parrot:Parrot", "word": "yes"}, name="a")
    assert (made.name, made.sampling) == ("a", {"word": "yes"})


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"kind": "own_parrot:Parot"}, "has no attribute 'Parot'"),
        ({"kind": "own_parrot:Parrot", "wrod": "x"}, "unknown setting of a own_parrot:Parrot policy.*'word'"),
        ({"kind": "own_parrot:Picky"}, "missing a required argument: 'word'"),
        ({"kind": "own_parrot:Stone"}, "expected module:Class of a Policy"),
        ({"kind": "own_parrot:PARROT"}, "has no attribute 'PARROT'"),
        ({"kind": "os:getcwd"}, "expected module:Class of a Policy"),
        ({"knd": "hf"}, "unknown kind of policy: 'a' has the settings \\['knd'\\] and no kind"),
    ],
)
def test_what_is_no_policy_is_refused(spec: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_policy(spec, name="a")


def test_it_plays_and_is_checked_from_the_command_line(tmp_path: Path) -> None:
    words = ["play", "relay_v0", "--policy", "own_parrot:Parrot", "a0=scripted:perfect", "-n", "2"]
    assert main([*words, "-o", "e.jsonl"]) == 0
    assert [turn.text for turn in read_episodes(tmp_path / "e.jsonl")[0].turns][1:] == ["hm", "hm"]
    assert main(["check", "policy", "own_parrot:Parrot"]) == 0


def test_it_speaks_in_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(
        '[env]\nname = "coalition_v0"\n[policies."*"]\nkind = "table"\nreplies = ["help", "pass"]\n'
        '[policies.planner]\nkind = "own_parrot:Parrot"\nword = "@all help"\n'
        '[[agents]]\nname = "planner"\ntrainable = false\n[train]\nsteps = 1\ntasks = 1\nevaluate_tasks = 0\n'
    )
    assert main(["train", "c.toml"]) == 0
    assert read_episodes(tmp_path / "run" / "episodes.jsonl")[0].turns[0].text == "@all help"


@pytest.mark.parametrize("command", [["measure"], ["report"], ["credit", "--method", "sharp"]])
def test_a_record_that_names_it_does_not_import_it(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "own_trap.py").write_text("from pathlib import Path\nPath('sprung').touch()\n")
    team = {"orchestrator": "p", "agents": {"p": {"policy": "own_trap:Trap"}, "w": {"policy": "own_trap:Trap"}}}
    turns = [{"agent": "p", "text": "go", "to": ["w"], "policy": "own_trap:Trap@0"}, {"agent": "w", "text": "x"}]
    seen = [{"silenced": ["w"], "reward": 0}]
    told = {"id": "e", "task": "t", "reward": 1, "turns": turns, "team": team, "counterfactuals": seen}
    (tmp_path / "e.jsonl").write_text(json.dumps(told))
    out = [] if command[0] == "credit" else ["-o", "r.html"]
    assert main([*command, "e.jsonl", *out]) == 0
    assert not (tmp_path / "sprung").exists()
    assert "own_trap" not in sys.modules


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"words": "hm"}, "words of policy 'p' was given as 'hm'; expected a list, each a text$"),
        ({"words": ["hm", 3]}, "words of policy 'p' was given as .* 3.; expected a list, each a text$"),
        ({"words": ["hm"], "mood": "crss"}, "expected 'calm' or 'cross'. Did you mean 'cross'"),
        ({"words": ["hm"], "name": "q"}, "unknown setting of a own_parrot:Strict policy 'name'"),
    ],
)
def test_its_annotations_say_what_it_takes(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_policy({"kind": "own_parrot:Strict", **settings}, name="p")


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("Strict", {"words": ["hm"], "mood": "cross", "where": "here"}),  # no file holds a Path: it makes one
        ("Parrot", {"word": 3}),
        ("Dreamer", {"word": 3}),
    ],
)
def test_what_has_no_annotation_that_can_be_read_is_its_own_affair(kind: str, settings: dict[str, object]) -> None:
    assert make_policy({"kind": f"own_parrot:{kind}", **settings}, name="p").name == "p"
