"""A model behind a server, against a real server on this machine."""

import contextlib
import gzip
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from macredit.agents import ChatServer, make_policies, make_policy, parse_policy
from macredit.check.policy import ask
from macredit.cli import main, world_of
from macredit.config import RunConfig
from macredit.episode import read_episodes
from macredit.errors import OutsideError, UserError
from macredit.ledger import Ledger
from macredit.measure import run_method
from macredit.policy import Chat, Request, Said
from macredit.rollout import play, tasks_of
from macredit.seeds import Key
from macredit.whatif import WhatIf

Answer = tuple[int, bytes]
"""Status and body."""


def completion(text: str | None, **more: Any) -> Answer:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    body = {"object": "chat.completion", "model": "m-2026", "choices": [choice], "usage": usage, **more}
    return 200, json.dumps(body).encode()


def counts(prompt: int, cached: Any) -> dict[str, Any]:
    details = {"cached_tokens": cached}
    return {"prompt_tokens": prompt, "completion_tokens": 1, "prompt_tokens_details": details}


def last_word(body: dict[str, Any]) -> Answer:
    """Repeats the last word of what it is asked."""
    return completion(body["messages"][-1]["content"].split()[-1])


class Server(ThreadingHTTPServer):
    """Answers chat requests with ``reply``, and remembers them."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        self.reply: Callable[[dict[str, Any]], Answer] = last_word
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.lock, self.busy, self.most = threading.Lock(), 0, 0

    def policy(self, **settings: Any) -> ChatServer:
        made = make_policy({"kind": "chat", "model": "m", "url": self.url, "retries": 0, **settings}, name="p")
        assert isinstance(made, ChatServer)
        return made


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self.answer(200, b'{"object": "list", "data": [{"id": "m"}, {"id": "other"}]}')

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.lock:
            server.asked.append(body)
            server.keys.append(self.headers["Authorization"])
            server.busy += 1
            server.most = max(server.most, server.busy)
        status, text = server.reply(body)
        with server.lock:
            server.busy -= 1
        self.answer(status, text)

    def answer(self, status: int, text: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        if text.startswith(b"\x1f\x8b"):
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Retry-After-Ms", "5")
        self.send_header("X-By", "Jos\u00e9")
        self.end_headers()
        self.wfile.write(text)

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:  # the other side hung up
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def asked(group: int = 0, prompt: str = "say hello") -> Request:
    return Request("a", (Chat("system", "You help."), Chat("user", prompt)), Key(0, "t", group))


def failure(policy: ChatServer) -> Exception:
    policy.submit([(5, asked())])
    [(ticket, error)] = policy.collect()
    assert ticket == 5
    assert isinstance(error, Exception)
    return error


def collected(policy: ChatServer, n: int) -> dict[int, Said | Exception]:
    answers: dict[int, Said | Exception] = {}
    while len(answers) < n:
        answers |= dict(policy.collect())
    return answers


# -- what it says


def test_a_reply_is_recorded_with_what_the_server_reports(server: Server) -> None:
    policy = server.policy(sampling={"top_p": 0.5}, max_tokens=9, price_in=3.0, price_out=15, extra={"n": 1})
    said = ask(policy, [asked()])[0]
    assert policy.version == "m-2026"
    assert said.text == "hello"
    assert (said.prompt_ids, said.token_ids, said.logprobs, said.finish) == (None, None, None, "stop")
    assert said.sampling == {"temperature": 1.0, "top_p": 0.5, "n": 1, "max_tokens": 9, "reproducible": False}
    # 7 prompt tokens at 3 and 2 sampled tokens at 15 a million: 7·3 + 2·15 = 51 millionths
    assert said.usage == {"prompt": 7, "sampled": 2, "cached": 4, "micros": 51}
    first, body = server.asked
    assert first["max_tokens"] == 1
    settings = {"temperature": 1.0, "top_p": 0.5, "n": 1, "max_tokens": 9, "seed": body["seed"]}
    messages = [{"role": "system", "content": "You help."}, {"role": "user", "content": "say hello"}]
    assert body == {"model": "m", "messages": messages, **settings}


def test_seeds_are_those_of_the_calls(server: Server) -> None:
    ask(server.policy(), [asked(0), asked(1)])
    ask(server.policy(), [asked(1), asked(0)])
    seeds = [body["seed"] for body in server.asked if "seed" in body]
    assert len(seeds) == 4
    assert len(set(seeds)) == 2


@pytest.mark.parametrize("text", ["grüße 東京 🎉\n\u2028", "", None])
def test_any_text_is_a_reply(server: Server, text: str | None) -> None:
    server.reply = lambda _: completion(text)
    assert ask(server.policy(), [asked(prompt="žluťoučký 🐎")])[0].text == (text or "")
    assert server.asked[-1]["messages"][-1]["content"] == "žluťoučký 🐎"


def test_a_server_may_count_nothing_and_cut_a_reply(server: Server) -> None:
    choice = {"message": {"content": "he"}, "finish_reason": "length"}
    server.reply = lambda _: completion("", usage=None, choices=[choice])
    said = ask(server.policy(price_in=1.0), [asked()])[0]
    assert (said.text, said.finish, said.usage) == ("he", "length", None)


# -- many calls


def test_calls_go_out_together_up_to_the_cap(server: Server) -> None:
    policy = server.policy(concurrency=4)
    gate = threading.Barrier(4, timeout=5)

    def together(body: dict[str, Any]) -> Answer:
        gate.wait()  # passes only when four calls are under way
        return last_word(body)

    server.reply = together
    policy.submit([(n, asked(n, f"say {n}")) for n in range(10)])
    policy.submit([(n, asked(n, f"say {n}")) for n in range(10, 12)])
    answers = collected(policy, 12)
    assert {n: said.text for n, said in answers.items() if isinstance(said, Said)} == {n: str(n) for n in range(12)}
    assert server.most == 4


def test_an_answer_comes_when_it_is_ready(server: Server) -> None:
    policy, gate = server.policy(), threading.Event()

    def slow(body: dict[str, Any]) -> Answer:
        if body["messages"][-1]["content"] == "say slow":
            gate.wait(5)
        return last_word(body)

    server.reply = slow
    policy.submit([(0, asked(prompt="say slow")), (1, asked(prompt="say fast"))])
    assert [ticket for ticket, _ in policy.collect()] == [1]
    gate.set()
    assert [ticket for ticket, _ in policy.collect()] == [0]


def test_requests_are_spaced(server: Server) -> None:
    begun = time.monotonic()
    ask(server.policy(requests_per_minute=600), [asked(n) for n in range(3)])
    assert time.monotonic() - begun >= 0.3  # four requests, one of them when the policy is made, 0.1 s apart


def pair(server: Server, **settings: Any) -> list[ChatServer]:
    """Policies ``a`` and ``b``."""
    spec = {"kind": "chat", "model": "m", "url": server.url, "retries": 0, **settings}
    made = make_policies({"a": spec, "b": {**spec, "url": server.url + "/"}}).values()
    return [policy for policy in made if isinstance(policy, ChatServer)]


def test_policies_on_one_server_keep_its_rate_together(server: Server) -> None:
    policies = pair(server, requests_per_minute=120)
    begun = time.monotonic()
    for policy in policies:
        policy.submit([(n, asked(n)) for n in range(2)])
    for policy in policies:
        assert len(collected(policy, 2)) == 2
    assert time.monotonic() - begun >= 1.5  # four requests, 0.5 s apart; with a rate each it would be 0.5 s in all


def test_policies_on_one_server_keep_its_concurrency_together(server: Server) -> None:
    policies, gate = pair(server, concurrency=2), threading.Event()

    def wait(body: dict[str, Any]) -> Answer:
        gate.wait(20)
        return last_word(body)

    server.reply = wait
    for name, policy in zip("ab", policies, strict=True):
        policy.submit([(n, asked(n, f"say {name}{n}")) for n in range(4)])
    time.sleep(1)  # time for a third call to come, if one is made
    gate.set()
    for name, policy in zip("ab", policies, strict=True):
        texts = {n: said.text for n, said in collected(policy, 4).items() if isinstance(said, Said)}
        assert texts == {n: f"{name}{n}" for n in range(4)}  # each policy has its own answers
    assert server.most == 2


def test_limits_of_one_server_that_differ_are_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    first = server.policy(requests_per_minute=600)
    with pytest.raises(UserError, match=r"requests_per_minute = None, and one before it .*= 600;.*give each the same"):
        server.policy()
    monkeypatch.setenv("CHAT_KEY", "sk-1")
    assert server.policy(key_env="CHAT_KEY").version == first.version  # another key has limits of its own
    del first
    assert server.policy(requests_per_minute=1200).version == "m-2026"


# -- what goes wrong


def first(answers: Sequence[Answer]) -> Callable[[dict[str, Any]], Answer]:
    left = list(answers)
    return lambda body: left.pop(0) if left else last_word(body)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again(server: Server, status: int) -> None:
    policy = server.policy(retries=2)
    server.reply = first([(status, b"{}")] * 2)
    assert ask(policy, [asked()])[0].text == "hello"
    assert len(server.asked) == 4


KEY = "sk-secret"


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        ((500, b'{"error": "the key sk-secret broke it"}'), "ChatError", r"answers 500: .*the key \*\*\* broke it"),
        ((400, b"no JSON"), "ChatError", "400"),
        ((429, b"{}"), "ChatError", "answers 429"),
        ((401, b"{}"), "KeyRefusedError", r"refuses the key in CHAT_KEY \(401\)"),
        ((403, b"{}"), "KeyRefusedError", "403"),
        ((404, b"{}"), "WrongModelError", "does not know the model 'm'"),
        (completion("hello", model="m-2027"), "WrongModelError", "with the model 'm-2027'; it began with 'm-2026'"),
        ((200, b"<html>"), "GarbageError", "no JSON"),
        ((200, b"\xff"), "GarbageError", "no JSON"),
        ((200, b"[]"), "GarbageError", r"answers \[\]; expected a chat completion"),
        (completion("", choices=[]), "GarbageError", "expected a chat completion"),
        (completion("", choices=[{"message": {"content": ["parts"]}}]), "GarbageError", "expected a chat completion"),
        (completion("\ud800"), "GarbageError", "half a character"),
        ((200, b"[" * 100_000 + b"]" * 100_000), "GarbageError", "no JSON"),
        ((200, b" " * (17 << 20)), "GarbageError", "answers without end; expected at most 16 MiB"),
        ((200, gzip.compress(b" " * (17 << 20))), "GarbageError", "answers without end; expected at most 16 MiB"),
        (completion("", usage={"prompt_tokens": -5, "completion_tokens": 1}), "GarbageError", "counts tokens as .*-5"),
        (completion("", usage={"prompt_tokens": 5, "completion_tokens": True}), "GarbageError", "counts tokens as"),
        (completion("", usage={"prompt_tokens": 10**400, "completion_tokens": 1}), "GarbageError", "counts tokens as"),
        (completion("", usage="many"), "GarbageError", "counts tokens as many; expected whole numbers of at least 0"),
        (completion("", usage=counts(5, 6)), "GarbageError", "no more cached than prompt tokens"),
    ],
)  # fmt: skip
def test_a_failed_call_is_its_typed_failure(
    server: Server, monkeypatch: pytest.MonkeyPatch, answer: Answer, kind: str, message: str
) -> None:
    monkeypatch.setenv("CHAT_KEY", KEY)
    policy = server.policy(key_env="CHAT_KEY", retries=1)
    assert server.keys == [f"Bearer {KEY}"]
    server.reply = lambda _: answer
    error = failure(policy)
    assert type(error).__name__ == kind
    assert re.search(message, str(error))
    assert KEY not in str(error)
    server.reply = last_word
    assert ask(policy, [asked()])[0].text == "hello"  # the next call is none the worse


def test_a_packed_answer_is_unpacked(server: Server) -> None:
    def packed(body: dict[str, Any]) -> Answer:
        status, text = last_word(body)
        return status, gzip.compress(text)

    server.reply = packed
    assert ask(server.policy(), [asked()])[0].text == "hello"


def test_a_slow_server_times_out(server: Server) -> None:
    policy, gate = server.policy(timeout=0.5), threading.Event()

    def wait(body: dict[str, Any]) -> Answer:
        gate.wait(5)
        return last_word(body)

    server.reply = wait
    error = failure(policy)
    gate.set()
    assert type(error).__name__ == "TimedOutError"
    assert "gave no answer within 0.5 s" in str(error)


@pytest.mark.parametrize("begun", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: "], ids=["body", "head"])
def test_a_server_that_answers_by_drops_times_out(monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            there, _ = listening.accept()
            with there, contextlib.suppress(ConnectionError):  # until the other side hangs up
                there.sendall(begun)
                for _ in range(100):
                    there.sendall(b" ")
                    time.sleep(0.1)

        dripping = threading.Thread(target=drip)
        dripping.start()
        url, now = f"http://127.0.0.1:{listening.getsockname()[1]}/v1", time.monotonic()
        with pytest.raises(OutsideError, match=r"policy 'p': .* gave no answer within 0.5 s \(0 retries\)"):
            make_policy({"kind": "chat", "model": "m", "url": url, "retries": 0, "timeout": 0.5}, name="p")
        assert time.monotonic() - now < 5  # it drips for 10 s
        dripping.join(timeout=2)
        assert not dripping.is_alive()  # the connection was given up too


def test_a_policy_that_is_gone_leaves_nothing_behind(server: Server) -> None:
    before = set(threading.enumerate())
    policy = server.policy()
    assert set(threading.enumerate()) - before
    del policy
    end = time.monotonic() + 5
    while set(threading.enumerate()) - before and time.monotonic() < end:
        time.sleep(0.02)
    assert not set(threading.enumerate()) - before


def closed_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/v1"


def test_a_server_that_is_down_is_named_before_anything_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    url = closed_port()
    with pytest.raises(OutsideError, match=r"policy 'p': .*cannot be reached.*is the server up"):
        make_policy({"kind": "chat", "model": "m", "url": url, "retries": 0}, name="p")
    out = tmp_path / "e.jsonl"
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    assert main(["play", "relay_v0", "--policy", f"chat:m@{url}", "-o", str(out)]) == 3
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not out.exists()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((404, b"{}"), "does not know the model 'm'; it serves m, other"),
        ((401, b"{}"), "wants a key; name it by key_env"),
        ((200, b"{}"), "expected a chat completion"),
    ],
)
def test_a_server_that_cannot_answer_is_named_when_the_policy_is_made(
    server: Server, answer: Answer, message: str
) -> None:
    server.reply = lambda _: answer
    with pytest.raises(OutsideError, match=message):
        server.policy()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"url": "localhost:8000"}, "expected a base URL such as http"),
        ({"url": "http://localhost:80x/v1"}, "expected a base URL such as http"),
        ({"url": "http://user:sk-secret@host/v1"}, "url holds a user name"),
        ({"key_env": KEY}, "key_env is no name of an environment variable"),
        ({"key_env": "MACREDIT_NO_SUCH_KEY"}, "no such variable"),
        ({"key_env": "BAD_KEY"}, "the key in BAD_KEY holds characters that no key has"),
        ({"sampling": {"top_k": 3}}, "unknown sampling parameter of a chat policy 'top_k'"),
        ({"sampling": {"temperature": -1}}, "temperature was given as -1; expected a number of at least 0"),
        ({"concurrency": 0}, "concurrency was given as 0; expected a whole number of at least 1"),
        ({"timeout": "long"}, "timeout was given as 'long'; expected a finite number"),
        ({"timeout": float("nan")}, "timeout was given as nan"),
        ({"max_tokens": True}, "max_tokens was given as True; expected a whole number"),
        ({"sampling": {"temperature": True}}, "temperature was given as True"),
        ({"extra": {"bias": float("nan")}}, "extra was given as .*nan.*; expected what JSON can hold"),
        ({"extra": {"day": date(2026, 1, 1)}}, "extra was given as .*2026.*; expected what JSON can hold"),
        ({"sampling": 3}, "sampling was given as 3; expected a table"),
        ({"key_env": [KEY]}, "key_env was given as a list; expected a text"),
        ({"key": KEY}, "unknown setting of a chat policy 'key'"),
    ],
)
def test_settings_are_checked(monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], message: str) -> None:
    monkeypatch.setenv("BAD_KEY", f"{KEY}\nmore")
    with pytest.raises(UserError, match=message) as caught:
        make_policy({"kind": "chat", "model": "m", "url": "http://127.0.0.1:1/v1", **settings})
    assert KEY not in str(caught.value)


def test_the_client_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    for module in ("chat", "server"):
        monkeypatch.delitem(sys.modules, f"macredit.agents.{module}")
    with pytest.raises(UserError, match=r'pip install "macredit\[server\]"'):
        make_policy({"kind": "chat", "model": "m", "url": "http://127.0.0.1:1/v1"})


def test_the_short_form() -> None:
    spec = {"kind": "chat", "model": "@cf/qwen3", "url": "http://host:8000/v1"}
    assert parse_policy("p=chat:@cf/qwen3@http://host:8000/v1") == ("p", spec)
    assert parse_policy("p=chat:@cf/qwen3@http://host:8000/v1#CHAT_KEY") == ("p", {**spec, "key_env": "CHAT_KEY"})
    with pytest.raises(UserError, match="chat was given 'qwen3'; expected MODEL@URL, as in chat:"):
        parse_policy("p=chat:qwen3")


# -- from end to end


def test_a_team_plays_and_only_the_failed_episode_fails(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CHAT_KEY", KEY)
    out = tmp_path / "e.jsonl"
    lock, left = threading.Lock(), [False, False, False, True]

    def fourth_fails(body: dict[str, Any]) -> Answer:
        with lock:
            fails = left.pop(0) if left else False
        return (401, b"{}") if fails else last_word(body)

    server.reply = fourth_fails
    words = ["play", "relay_v0", "--policy", f"chat:m@{server.url}#CHAT_KEY", "-n", "4", "-o", str(out)]
    assert main(words) == 0
    assert "4 episodes" in capsys.readouterr().err
    episodes = read_episodes(out)
    assert sorted(episode.end for episode in episodes)[-1] == "failed:policy"
    assert [episode.error for episode in episodes if episode.failed] == [
        f"KeyRefusedError: {server.url} refuses the key in CHAT_KEY (401)"
    ]
    played = [turn for episode in episodes if not episode.failed for turn in episode.turns]
    assert len(played) == 9
    assert all((turn.policy or "").endswith("@m-2026") for turn in played)
    assert all(turn.sampling == {"temperature": 1.0, "reproducible": False} for turn in played)
    assert KEY not in out.read_text()
    calls = len(server.asked)
    assert main(["measure", str(out), "-o", str(tmp_path / "report.html")]) == 0
    assert main(["credit", str(out), "--method", "grpo", "--json"]) == 0
    assert len(server.asked) == calls  # a record is read without the server


def test_replays_ask_the_model_on_record_and_are_counted(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, policy = str(tmp_path / "e.jsonl"), f"chat:m@{server.url}"
    assert main(["play", "relay_v0", "--policy", policy, "-n", "2", "-o", out]) == 0
    calls = len(server.asked)
    capsys.readouterr()
    assert main(["credit", out, "--method", "difference", "--policy", policy, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    made = len(server.asked) - calls - 3  # one word for each of the three policies that are made
    assert result["cost"]["calls"] == made
    assert result["cost"]["prompt_tokens"] == 3 * made  # 7 of which 4 are cached
    assert result["cost"]["sampled_tokens"] == 2 * made
    assert result["cost"]["micros"] == 0  # no price was given
    assert result["cost"]["replays"] > 0
    assert not [warning for warning in result["warnings"] if "sampled anew" in warning]


def test_what_calls_cost_is_summed(server: Server) -> None:
    prices = {"price_in": 3.0, "price_out": 15.0}
    spec = {"kind": "chat", "model": "m", "url": server.url, **prices}
    world, ledger = world_of(RunConfig({"name": "relay_v0"}, {"*": spec})), Ledger()
    episodes = play(world, tasks_of(0, 1, 2), ledger=ledger)
    assert ledger.micros == 51 * ledger.calls  # 7 prompt tokens at 3 and 2 sampled ones at 15 a million
    found = run_method("difference", WhatIf(episodes, world, ledger=ledger))
    assert found.cost["calls"] > 0
    assert found.cost["micros"] == 51 * found.cost["calls"]


def test_it_learns_only_frozen(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chat = f"chat:m@{server.url}"
    words = ["train", "--env", "relay_v0", "--policy", chat, "--method", "dr_mas", "-o", str(tmp_path / "run")]
    assert main(words) == 2
    assert "(ChatServer) cannot learn: it has no log-probabilities" in capsys.readouterr().err
    config = f"""
        [env]
        name = "coalition_v0"
        [[agents]]
        name = "planner"
        trainable = false
        [policies.planner]
        kind = "chat"
        model = "m"
        url = "{server.url}"
        [policies.a]
        kind = "table"
        replies = ["help", "pass"]
        [policies.b]
        kind = "table"
        replies = ["help", "pass"]
        [policies.c]
        kind = "table"
        replies = ["help", "pass"]
        [method]
        name = "dr_mas"
        [train]
        steps = 1
        tasks = 1
        group = 2
        evaluate_tasks = 1
    """
    (tmp_path / "team.toml").write_text(config)
    assert main(["train", str(tmp_path / "team.toml"), "-o", str(tmp_path / "frozen")]) == 0
