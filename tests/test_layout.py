"""The structure: what may import what, what installs, and what stays light."""

import ast
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

import macredit

ROOT = Path(__file__).parents[1]
OUTWARD = ("macredit.envs", "macredit.agents", "envs", "agents")


def imported(path: Path) -> set[str]:
    """Every module a file imports, at any depth."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module and node.level == 0]
    return names | {f"{node.module}.{alias.name}" for node in froms for alias in node.names}


def inside(part: str) -> set[str]:
    """The other parts of the package that a file or folder of it imports, at any depth and for types too."""
    here = ROOT / "macredit" / part
    paths = here.rglob("*.py") if here.is_dir() else [here.with_suffix(".py")]
    names = [name.split(".") for path in paths for name in imported(path)]
    return {name[1] for name in names if name[0] == "macredit"} - {part}


@pytest.mark.parametrize("path", sorted((ROOT / "macredit").rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_inward(path: Path) -> None:
    if path.parent != ROOT / "macredit" / "cli":
        assert not {name for name in imported(path) if name.startswith(OUTWARD)}


def test_the_mathematics_of_games_knows_no_replays() -> None:
    assert inside("values") == {"episode", "errors", "rows", "seeds"}  # of an episode, how a file is written


@pytest.mark.parametrize(
    ("part", "outer"),
    [
        ("moves", {"credit", "learn", "whatif"}),
        ("rollout", {"credit", "learn", "whatif"}),
        ("whatif", {"credit", "learn"}),
        ("credit", {"learn", "train", "report", "cli"}),
        ("learn", {"train", "report", "cli"}),
        ("train", {"report", "cli"}),
    ],
)
def test_inner_parts_know_nothing_of_outer_ones(part: str, outer: set[str]) -> None:
    assert not inside(part) & outer


@cache
def loaded(*modules: str) -> frozenset[str]:
    """Every module that a fresh interpreter has after importing these."""
    code = f"import {', '.join(modules)}, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return frozenset(done.stdout.split())


def test_credit_loads_no_learner() -> None:
    found = loaded("macredit.credit", "macredit.whatif")
    assert "macredit.whatif" in found
    assert "macredit.learn" not in found


@pytest.mark.parametrize("folder", ["envs", "agents"])
def test_environments_and_policies_do_not_import_each_other(folder: str) -> None:
    for path in (ROOT / folder).glob("*.py"):
        assert not {name for name in imported(path) if name.startswith(OUTWARD)}


def test_every_package_is_listed() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    inside = {".".join(p.parent.relative_to(ROOT).parts) for p in (ROOT / "macredit").rglob("__init__.py")}
    assert listed == inside | {"macredit.envs", "macredit.agents"}


@pytest.mark.parametrize(
    "module", ["macredit", "macredit.learn", "macredit.credit", "macredit.advantage", "macredit.cli"]
)
def test_light_parts_stay_light(module: str) -> None:
    assert not loaded(module) & {"torch", "transformers", "peft", "matplotlib"}


@pytest.mark.parametrize("module", ["macredit.learn", "macredit.credit", "macredit.advantage", "macredit.values"])
def test_the_mathematics_needs_no_environment(module: str) -> None:
    assert not loaded(module) & {"pettingzoo", "gymnasium"}


def test_the_front_door_opens_every_name() -> None:
    for name in macredit.__all__:
        assert getattr(macredit, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = macredit.nothing
