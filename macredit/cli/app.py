"""The command line: every command is a function that builds plain values and calls the library."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from macredit.cli.check import check_env, check_method, check_policy
from macredit.cli.compare import compare
from macredit.cli.credit import credit
from macredit.cli.demo import demo
from macredit.cli.lists import envs, methods
from macredit.cli.measure import measure
from macredit.cli.play import play
from macredit.cli.report import report
from macredit.cli.screen import say
from macredit.cli.train import train
from macredit.cli.value import value
from macredit.errors import OutsideError, UserError

app = App(
    name="macredit",
    help="Who in the team earned the reward? Train, measure and compare teams of LLM agents.",
    help_format="rich",
    suppress_keyboard_interrupt=False,
)
check = App(name="check", help="Run the conformance checks that macredit's own parts pass on yours.")
app.command(check)
for command in (demo, play, credit, measure, value, compare, train, report, methods, envs):
    app.command(command)
for part, conformance in (("env", check_env), ("policy", check_policy), ("method", check_method)):
    check.command(conformance, name=part)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 done, 2 the input is wrong, 3 something outside failed, 130 interrupted.

    Raises:
        SystemExit: with 1, a check failed.
    """
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # where module:name of the user's own is found; never before what is installed
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal without Unicode shows escapes
    try:
        app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except (CycloptsError, UserError) as error:
        say(f"macredit: {error}")
        return 2
    except BrokenPipeError:  # whoever read the output has left; nothing more can be said to them
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 3
    except (OutsideError, OSError) as error:
        say(f"macredit: {error}")
        return 3
    except KeyboardInterrupt:
        say("macredit: interrupted; what was complete is kept")
        return 130
    return 0
