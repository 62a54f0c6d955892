"""``macredit methods`` and ``macredit envs``: what there is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from macredit.cli.options import Json
from macredit.cli.screen import show

if TYPE_CHECKING:
    from macredit.tables import Listing

Markdown = Annotated[bool, Parameter(negative="")]


def methods(*, json_: Json = False, markdown: Markdown = False) -> None:
    """The credit methods: what each estimates, what it needs, where it comes from.

    Args:
        json_: Print one JSON object and nothing else.
        markdown: Print the table of the README.
    """
    from macredit import tables
    from macredit.credit import METHODS, resolve, settings_dict

    if json_:
        shown = {
            name: {
                "grain": m.grain, "needs": sorted(m.needs), "estimand": m.estimand, "axioms": sorted(m.axioms),
                "presets": list(m.presets), "settings": settings_dict(resolve(name)[1]), "paper": m.paper,
            }
            for name, m in METHODS.items()
        }  # fmt: skip
        print(json.dumps(shown))
    else:
        _print(tables.methods_list(METHODS), markdown)


def envs(*, markdown: Markdown = False) -> None:
    """The environments, and the arguments they take.

    Args:
        markdown: Print the table of the README.
    """
    from macredit import tables
    from macredit.envs import ENVS, env_class

    _print(tables.envs_list({name: env_class(name) for name in ENVS}), markdown)


def _print(listing: Listing, as_markdown: bool) -> None:
    from macredit import tables

    if as_markdown:
        print(tables.markdown(listing))
    else:
        show(tables.terminal(listing))
