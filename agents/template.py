"""From a conversation to prompt ids by a model's chat template, without ever re-encoding what was sampled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from jinja2 import TemplateError

from macredit.errors import UserError
from macredit.policy import Chat, Request

History = Literal["grow", "render"]
_BROKEN = (TemplateError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What rendering raises: Jinja's own errors, and those of expressions in the text."""
_PROBES = ("b", "<think>a</think>b")
"""Replies whose rendering shows whether a template rewrites them once they are history."""


class Template:
    """A chat template as a map from requests to ids.

    Args:
        tokenizer: a Hugging Face tokenizer.
        model: what to call it in errors.
        text: a Jinja template instead of the tokenizer's own.
        settings: variables of the template, such as ``enable_thinking``.
        history: ``grow``: a later prompt is the ids of the earlier one, the sampled ids, and the ids of what is new;
            ``render``: every prompt is rendered afresh from the texts, for templates that rewrite history.

    Raises:
        UserError: there is no template, it cannot be rendered, or it rewrites history and ``history`` is ``grow``.
    """

    def __init__(
        self,
        tokenizer: Any,
        model: str,
        text: str | None = None,
        settings: Mapping[str, Any] | None = None,
        history: History = "grow",
    ) -> None:
        if text is None and not tokenizer.chat_template:
            raise UserError(f'model {model!r} has no chat template; give one: template = "a Jinja text"')
        if history not in ("grow", "render"):
            raise UserError(f"history was given as {history!r}; expected 'grow' or 'render'")
        self._tokenizer, self._text, self._settings = tokenizer, text, dict(settings or {})
        self._grow = history == "grow"
        self._system = self._renders([Chat("system", "s"), Chat("user", "u")])
        try:
            changed = [reply for reply in _PROBES if self._rewrites(reply)]
            end = self._encode(self._after("x", None))
        except _BROKEN as error:
            raise UserError(
                f"the chat template of {model!r} cannot be rendered ({type(error).__name__}: {error}); expected a "
                "Jinja text that turns messages with role and content into a prompt; mend template or template_settings"
            ) from None
        if self._grow and changed:
            raise UserError(
                f"the chat template of {model!r} rewrites history: a reply {changed[0]!r} is shown otherwise once "
                "another message follows, so ids cannot go on where they ended; give history = 'render', or another "
                "template"
            )
        self.end: int | None = end[0] if end and end[0] in tokenizer.all_special_ids else None
        """The id that ends a turn, where the template has one."""

    def prompt(self, request: Request) -> tuple[int, ...]:
        """The ids of a request's prompt."""
        before = request.after
        if not self._grow or before is None or before.prompt_ids is None or before.token_ids is None:
            return self._encode(self._render(request.messages, answer=True))
        new = self._encode(self._after("x", _newest(request.messages)))
        if new and before.token_ids and before.token_ids[-1] == new[0]:
            new = new[1:]  # the end of the turn was sampled already
        return before.prompt_ids + before.token_ids + new

    def reply(self, text: str) -> tuple[int, ...]:
        """The ids of a reply that was not sampled, its end among them."""
        return self._encode(text) + (() if self.end is None else (self.end,))

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _render(self, messages: Sequence[Chat], answer: bool) -> str:
        if not self._system and messages[0].role == "system":  # such a model hears its role in the first message
            role, first, *rest = messages
            messages = [Chat("user", f"{role.content}\n\n{first.content}"), *rest]
        text: str = self._tokenizer.apply_chat_template(
            [message._asdict() for message in messages], chat_template=self._text, tokenize=False,
            add_generation_prompt=answer, **self._settings,
        )  # fmt: skip
        return text

    def _renders(self, messages: Sequence[Chat]) -> bool:
        """Whether the template knows these roles (some raise at a system message)."""
        self._system = True
        try:
            return "s" in self._render(messages, answer=True)
        except _BROKEN:
            return False

    def _after(self, reply: str, prompt: str | None) -> str:
        """What the template writes after a reply: the end of the turn and, with a new prompt, all up to speaking."""
        talk = [Chat("user", "u"), Chat("assistant", reply)]
        head = self._render(talk[:1], answer=True) + reply
        whole = self._render(talk if prompt is None else [*talk, Chat("user", prompt)], answer=prompt is not None)
        return whole[len(head) :] if whole.startswith(head) else ""

    def _rewrites(self, reply: str) -> bool:
        talk = [Chat("user", "u"), Chat("assistant", reply)]
        head = self._render(talk[:1], answer=True) + reply
        return not self._render([*talk, Chat("user", "v")], answer=True).startswith(head)


def _newest(messages: Sequence[Chat]) -> str:
    """What was said to the agent since its last reply."""
    last = max(i for i, message in enumerate(messages) if message.role == "assistant")
    return "\n\n".join(message.content for message in messages[last + 1 :])
