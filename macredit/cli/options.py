"""The options that several commands take, with their help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

Policies = Annotated[
    tuple[str, ...],
    Parameter(
        name="--policy",
        consume_multiple=True,
        negative="",
        help="NAME=KIND[:ARG], NAME=FOLDER or NAME=module:Class, such as solver=hf:tiny or solver=scripted:noisy:0.7; "
        "without NAME= it speaks for everyone not named.",
    ),
]
Arguments = Annotated[
    tuple[str, ...],
    Parameter(
        name="--arg",
        consume_multiple=True,
        negative="",
        help="KEY=VALUE for the environment; the value is read as JSON where it is JSON, such as preset=or.",
    ),
]
Data = Annotated[
    str,
    Parameter(name="--data", help="Your own tasks, for environments that take `data`: the same as --arg data=FILE."),
]
Output = Annotated[Path, Parameter(name=["--out", "-o"])]
Json = Annotated[bool, Parameter(name="--json", negative="")]
