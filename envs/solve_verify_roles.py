"""Role texts of planner, solver and verifier: plain, or with worked examples for small models."""

from __future__ import annotations

PLAIN = {
    "planner": "You are the planner. Repeat all your facts and the question to the solver.",
    "solver": "You are the solver. Reply with the answer alone.",
    "solo": "Reply with the answer alone.",
    "verifier": "You are the verifier. Reply approve if the solver is right, else reject and the right answer.",
}

EXAMPLES = {
    "needle_haystack": {
        "planner": (
            ("Facts: Ann likes tea.\nQuestion: Who likes tea? Reply only with a name.",
             "Ann likes tea. Who likes tea? Reply only with a name."),
            ("Facts: Carl owns a boat. Dora hates rain.\nQuestion: Who hates jazz? Reply only with a name.",
             "Carl owns a boat. Dora hates rain. Who hates jazz? Reply only with a name."),
            ("Facts: Gus bakes bread.\nQuestion: Who rides bikes? Reply only with a name.",
             "Gus bakes bread. Who rides bikes? Reply only with a name."),
        ),
        "solver": (
            ("Facts: Bob fears cats.\nplanner: Ann likes tea. Who likes tea? Reply only with a name.", "Ann"),
            ("Facts: Eve hates jazz.\nplanner: Carl owns a boat. Who hates jazz? Reply only with a name.", "Eve"),
            ("Facts: Fay sells hats.\nplanner: Gus bakes bread. Who bakes bread? Reply only with a name.", "Gus"),
            ("Facts: Hugo rides bikes.\nplanner: Ida knits socks. Who rides bikes? Reply only with a name.", "Hugo"),
            ("Facts: Jim paints walls.\nplanner: Kim rejects opera. Who rejects opera? Reply only with a name.", "Kim"),
        ),
        "verifier": (
            ("Facts: Bob fears cats.\nQuestion: Who likes tea? Reply only with a name.\nsolver: Ann", "approve"),
            ("Facts: Hugo rides bikes.\nQuestion: Who rides bikes? Reply only with a name.\nsolver: Ida",
             "reject. Answer: Hugo"),
            ("Facts: Ida knits.\nQuestion: Who hates jazz? Reply only with a name.\nsolver: Eve", "approve"),
        ),
        "solo": (
            ("Facts: Ann likes tea. Bob fears cats.\nQuestion: Who likes tea? Reply only with a name.", "Ann"),
            ("Facts: Carl owns a boat. Eve hates jazz.\nQuestion: Who hates jazz? Reply only with a name.", "Eve"),
            ("Facts: Hugo rides bikes. Fay sells hats.\nQuestion: Who rides bikes? Reply only with a name.", "Hugo"),
        ),
    },
    "chain_sum": {
        "planner": (
            ("Question: State the final answer to the following arithmetic problem: 3 + 4 =",
             "State the final answer to the following arithmetic problem: 3 + 4 ="),
        ),
        "solver": (
            ("planner: State the final answer to the following arithmetic problem: 3 + 4 =", "7"),
            ("planner: State the final answer to the following arithmetic problem: 9 - 6 =", "3"),
            ("planner: State the final answer to the following arithmetic problem: 2 - 5 =", "-3"),
        ),
        "verifier": (
            ("Question: State the final answer to the following arithmetic problem: 3 + 4 =\nsolver: 7", "approve"),
            ("Question: State the final answer to the following arithmetic problem: 9 - 6 =\nsolver: 4",
             "reject. Answer: 3"),
        ),
        "solo": (
            ("Question: State the final answer to the following arithmetic problem: 3 + 4 =", "7"),
            ("Question: State the final answer to the following arithmetic problem: 9 - 6 =", "3"),
            ("Question: State the final answer to the following arithmetic problem: 2 - 5 =", "-3"),
        ),
    },
    "letter_counting": {
        "planner": (
            ('Question: How many times does the letter "a" appear in the text: "a bad cat"?',
             'How many times does the letter "a" appear in the text: "a bad cat"?'),
        ),
        "solver": (
            ('planner: How many times does the letter "a" appear in the text: "a bad cat"?', "3"),
            ('planner: How many times does the letter "e" appear in the text: "the old man"?', "1"),
        ),
        "verifier": (
            ('Question: How many times does the letter "a" appear in the text: "a bad cat"?\nsolver: 3', "approve"),
            ('Question: How many times does the letter "e" appear in the text: "the old man"?\nsolver: 2',
             "reject. Answer: 1"),
        ),
        "solo": (
            ('Question: How many times does the letter "a" appear in the text: "a bad cat"?', "3"),
            ('Question: How many times does the letter "e" appear in the text: "the old man"?', "1"),
        ),
    },
}  # fmt: skip
"""Data set → role → (what is shown, what to reply)."""


def role(agent: str, dataset: str, examples: bool, solo: bool) -> str:
    """An agent's role text; a lone solver's says that there is nobody to ask."""
    kind = "solo" if solo else agent.rstrip("0123456789")
    shown = EXAMPLES.get(dataset, {}).get(kind, ()) if examples else ()
    return "\n".join([PLAIN[kind], *(f"--- user\n{prompt}\n--- assistant\n{reply}" for prompt, reply in shown)])
