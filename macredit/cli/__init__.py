"""The command line: one file a command, each thin; a command builds plain values and calls the library.

``app.py`` names the commands; ``options.py`` the options that several take; ``words.py`` makes worlds of what was said,
``replays.py`` of what was recorded; ``screen.py`` shows results.
"""

from macredit.cli.app import main
from macredit.cli.report import report_of
from macredit.cli.words import world_of

__all__ = ["main", "report_of", "world_of"]
