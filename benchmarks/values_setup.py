"""Prepares the packages that values are compared with, in a virtual environment of their own outside the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

SHAPIQ = "shapiq==1.8.0"
NEWEST = (3, 13)
"""shapiq 1.8 wants 3.12 or later; not every rival has wheels for what comes after this."""
RIVALS = (
    ("pyDVL==0.10.0",),
    ("shapley-numba==0.1.5",),  # asks for NumPy 2 where pyDVL pins 1, and comes second: both work with 2
    ("coopgame-py==0.3.0",),
    ("myerson==1.0.1",),
    ("xgboost", "lightgbm"),  # the models inside RegressionMSR, ProxySHAP and OddSHAP
    ("torch", "gpytorch", "botorch", "linear_operator"),  # the models inside ShaplEIG; several GB with CUDA
)
"""LeverageSHAP, OddSHAP, ShaplEIG and the rest are measured as shapiq offers them; PyPI has none of them alone."""


def default_folder() -> Path:
    """Where the rivals live unless told otherwise."""
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "macredit" / "rivals"


def python_in(folder: Path) -> Path | None:
    """The rivals' interpreter, if they were prepared."""
    python = folder / "bin" / "python"
    return python if python.exists() else None


def prepare(folder: Path) -> None:
    """Create the environment and install every rival; one that cannot be had is named, and its rows stay open.

    Raises:
        SystemExit: shapiq cannot be had.
    """
    interpreter = next(interpreters(), None)
    print(f"rivals: {folder}, {interpreter or sys.executable}")
    subprocess.run([interpreter or sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    if not (_install(pip, SHAPIQ) if interpreter else _install_edited(pip)):
        sys.exit(f"{SHAPIQ} could not be installed; see the messages above")
    for packages in RIVALS:
        print(", ".join(packages), flush=True)
        if not _install(pip, *packages):
            print(f"  {', '.join(packages)}: not to be had here; the rows that need it stay open")


def interpreters() -> Iterator[str]:
    """Interpreters that shapiq's wheels run on: this one, those on the path, pyenv's."""
    minors = range(12, NEWEST[1] + 1)
    if sys.version_info[:2] in [(3, minor) for minor in minors]:
        yield sys.executable
    for minor in minors:
        found = shutil.which(f"python3.{minor}")
        versions = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
        for candidate in ([found] if found else []) + sorted(map(str, versions.glob(f"3.{minor}.*/bin/python"))):
            if subprocess.run([candidate, "-c", "import venv, ssl"], capture_output=True, check=False).returncode == 0:
                yield candidate


def edited(source: str) -> str:
    """What Python 3.11 cannot read in shapiq's source: ``type`` statements, and ``override`` from ``typing``."""
    source = re.sub(r"^(\s*)type (\w+) = ", r"\1\2 = ", source, flags=re.MULTILINE)
    return re.sub(
        r"^from typing import (.*), override$",
        r"from typing import \1\nfrom typing_extensions import override",
        source,
        flags=re.MULTILINE,
    )


def _install(pip: list[str], *packages: str) -> bool:
    return subprocess.run([*pip, "install", "--prefer-binary", *packages], check=False).returncode == 0


def _install_edited(pip: list[str]) -> bool:
    """The source distribution of shapiq, made readable for this older Python."""
    with tempfile.TemporaryDirectory() as work:
        print(f"no Python 3.12 found: {SHAPIQ} from its source, edited", flush=True)
        options = ["--no-deps", "--no-binary", "shapiq", "--ignore-requires-python", "--dest", work]
        if subprocess.run([*pip, "download", *options, SHAPIQ], check=False).returncode:
            return False
        with tarfile.open(next(Path(work).glob("shapiq-*.tar.gz"))) as archive:
            archive.extractall(work, filter="data")
        folder = next(path for path in Path(work).glob("shapiq-*") if path.is_dir())
        for path in (folder / "src" / "shapiq").rglob("*.py"):
            path.write_text(edited(path.read_text("utf-8")), "utf-8")
        return _install(pip, "--ignore-requires-python", "typing_extensions", str(folder))
