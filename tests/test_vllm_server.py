"""A model behind a server, before any vLLM: a small server on this machine that speaks its protocol."""

import json
import threading
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from macredit.agents import Copy, Served, VLLMServer, make_policy, parse_engine, parse_policy
from macredit.check.policy import ask
from macredit.cli import main
from macredit.errors import OutsideError, UserError
from macredit.learn import Learner, LearnerConfig, TrainRow
from macredit.learn.handover import Engine, Weights
from macredit.policy import Chat, Request, Said
from macredit.run_folder import read_metrics
from macredit.seeds import Key

torch = pytest.importorskip("torch")
pytest.importorskip("openai")
torch.set_num_threads(1)

Body = dict[str, Any]
REQUESTS = [Request("x", (Chat("user", "hello"),), Key(0, "t", g)) for g in range(3)]


class Serves(ThreadingHTTPServer):
    """A tiny model and its adapter, as ``vllm serve`` answers."""

    daemon_threads = True

    def __init__(self, lora: Any) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        self.lora, self.lock = lora, threading.Lock()
        self.names, self.folder, self.version = ["tiny"], Path(), "default"
        self.routes: dict[str, Callable[[Body], Any]] = {
            "/v1/models": lambda _: {"data": [{"id": "tiny", "max_model_len": 4096}]},
            "/v1/completions": self.complete,
            "/v1/load_lora_adapter": self.load,
            "/v1/unload_lora_adapter": lambda body: self.names.remove(body["lora_name"]),
            "/init_weight_transfer_engine": lambda body: setattr(self, "folder", Path(body["init_info"]["folder"])),
            "/start_weight_update": lambda _: None,
            "/update_weights": lambda body: self.read(self.folder / body["update_info"]["file"], None),
            "/finish_weight_update": lambda body: setattr(self, "version", body["weight_version"]),
            "/weight_info": lambda _: {"weight_version": self.version},
            "/reset_prefix_cache": lambda _: {"success": True},
        }

    @cached_property
    def model(self) -> Copy:
        made = make_policy({"kind": "hf", "model": "tiny", "lora": self.lora, "engine": "copy"}, name="p")
        assert isinstance(made, Served)
        assert isinstance(made.engine, Copy)
        return made.engine

    def complete(self, body: Body) -> Any:
        """Ids that hang on the seed alone, and what the model gives them."""
        assert body["model"] in self.names
        prompt = body["prompt"]
        new = [((len(prompt) + k) * 7 + body["seed"]) % 256 for k in range(body["max_tokens"])]
        found = self.score(prompt, new)
        tops = [{f"token_id:{i}": logp} for i, logp in zip(new, found, strict=True)]
        for i in body.get("logprob_token_ids", ()):
            tops[0][f"token_id:{i}"] = self.score(prompt, [i])[0]
        choice = {"token_ids": new, "text": "…", "logprobs": {"token_logprobs": found, "top_logprobs": tops}}
        usage = {"prompt_tokens_details": {"cached_tokens": min(4, len(prompt))}}
        return {"model": body["model"], "choices": [choice], "usage": usage}

    def score(self, prompt: list[int], reply: list[int]) -> list[float]:
        ids = np.array([*prompt, *reply])
        row = TrainRow(ids, np.arange(len(ids)) >= len(prompt), np.zeros(len(ids)), 0.0, 1.0, 0)
        scores: list[float] = self.model.score([row])[0][len(prompt) :].tolist()
        return scores

    def load(self, body: Body) -> str:
        folder = Path(body["lora_path"])
        self.read(folder / "adapter_model.safetensors", json.loads((folder / "adapter_config.json").read_text()))
        self.names.append(body["lora_name"])
        return "Success"

    def read(self, path: Path, lora: Any) -> None:
        from safetensors.torch import load_file

        self.model.receive(Weights("new", load_file(path), lora))


class Handler(BaseHTTPRequestHandler):
    """Finds the route; what a route returns is sent as it is (bytes) or as JSON."""

    server: Serves
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        route = self.server.routes.get(self.path)
        with self.server.lock:
            answer = None if route is None else route({"seed": 0, **body})
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(404 if route is None else 200)
        self.send_header("Content-Type", "text/plain" if isinstance(answer, str) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def serving() -> Iterator[Callable[..., Serves]]:
    """Starts servers, and stops them in the end."""
    started: list[Serves] = []

    def start(lora: Any = None) -> Serves:
        started.append(Serves(lora))
        threading.Thread(target=partial(started[-1].serve_forever, 0.01), daemon=True).start()
        return started[-1]

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


def served(server: Serves, lora: Any = None, **engine: Any) -> Served:
    about = {"kind": "vllm-server", "url": server.url, "retries": 0, **engine}
    made = make_policy({"kind": "hf", "model": "tiny", "lora": lora, "max_tokens": 3, "engine": about}, name="p")
    assert isinstance(made, Served)
    return made


def row(said: Said, sequence: int) -> TrainRow:
    ids = np.array((said.prompt_ids or ()) + (said.token_ids or ()))
    mask = np.arange(len(ids)) >= len(said.prompt_ids or ())
    logprob = np.zeros(len(ids))
    logprob[mask] = said.logprobs
    return TrainRow(ids, mask, logprob, sequence % 2 - 0.5, 1.0, sequence)


@pytest.mark.parametrize("lora", [None, {"rank": 4}], ids=["full", "lora"])
def test_a_server_speaks_and_takes_new_weights(serving: Callable[..., Serves], lora: Any) -> None:
    server = serving(lora)
    policy = served(server, lora)
    assert isinstance(policy.engine, Engine)
    said = ask(policy, REQUESTS)
    assert all(len(one.token_ids or ()) == 3 for one in said)
    assert all(one.usage and one.usage["cached"] == 4 for one in said)
    rows = [row(one, n) for n, one in enumerate(said)]
    for own, learned in zip(rows, policy.learner.logprobs(rows), strict=True):
        assert own.logprob == pytest.approx(learned, abs=1e-5)
    Learner(policy, LearnerConfig(rate=1e-2)).update(rows)
    assert policy.hand_over()["canary"] < 1e-5
    assert policy.version == policy.learner.version
    assert server.names == (["tiny"] if lora is None else ["tiny", f"p@{policy.version}"])
    assert server.version == (policy.version if lora is None else "default")
    assert ask(policy, REQUESTS) != said


def replies(answer: Any) -> Callable[[Body], Any]:
    return lambda _: answer


def completion(ids: list[Any], logps: list[Any]) -> dict[str, Any]:
    choice = {"token_ids": ids, "text": "…", "logprobs": {"token_logprobs": logps}}
    return {"model": "tiny", "choices": [choice]}


def cached(n: Any) -> dict[str, Any]:
    return {"prompt_tokens_details": {"cached_tokens": n}}


@pytest.mark.parametrize(
    ("route", "answer", "said"),
    [
        ("models", {"data": []}, "expected one base model"),
        ("models", {"data": [{"id": "a"}, {"id": "b"}]}, "it serves a, b; expected one base model, of tiny"),
        ("models", [1], "expected a list of models"),
        ("models", {"data": [{}]}, "expected a list of models, each with an id"),
        *(
            ("models", {"data": [{"id": "tiny", "max_model_len": room}]}, "a max_model_len of at least 1")
            for room in ("lots", [4], -5, 0, True)
        ),
        *(
            ("completions", completion([5], [logp]), f"the log-probability {said}; expected a finite number of at most")
            for logp, said in (
                (float("nan"), "nan"),
                (-float("inf"), "-inf"),
                (5.0, "5.0"),
                ("x", "'x'"),
                (None, "None"),
            )
        ),
        *(
            ("completions", completion([found], [-1.0]), f"with the id {said}; expected 0 to 260")
            for found, said in (
                (10**9, "1000000000"),
                (-7, "-7"),
                ("a", "'a'"),
                (None, "None"),
                (3.5, "3.5"),
                (True, "True"),
            )
        ),
        ("completions", completion([5] * 5000, [-1.0] * 5000), "5000 ids and 5000 log-probabilities; expected 1 to 1,"),
        ("completions", completion([5], []), "1 ids and 0 log-probabilities"),
        ("completions", b"[" * 100_000 + b"]" * 100_000, "what is no JSON"),
        *(
            ("completions", {**completion([5], [-1.0]), "usage": usage}, "counts tokens as")
            for usage in ("x", {"prompt_tokens_details": [1]}, cached("many"), cached(-1), cached(99999), cached(True))
        ),
        ("completions", {"oh": "no"}, "expected a completion"),
        ("completions", b"<html>", "what is no JSON"),
        ("completions", {"model": "tiny", "choices": [{"text": "hm"}]}, "returns no token ids with log-probabilities"),
        (
            "completions",
            {"model": "other", "choices": [{"token_ids": [1], "logprobs": {"token_logprobs": [-1.0]}}]},
            "answers with 'other'; 'tiny' was asked",
        ),
    ],
)
def test_what_is_wrong_with_a_server_is_named_before_anything_is_played(
    serving: Callable[..., Serves], route: str, answer: Any, said: str
) -> None:
    server = serving()
    server.routes[f"/v1/{route}"] = replies(answer)
    with pytest.raises(OutsideError, match=f"policy 'p': .*{said}"):
        served(server)


@pytest.mark.parametrize(
    ("tops", "said"),
    [
        (None, "expected top_logprobs with 'token_id:"),
        ([], "expected top_logprobs with 'token_id:"),
        ([None], "expected top_logprobs with 'token_id:"),
        ([{"token_id:1": -1.0}], "expected top_logprobs with 'token_id:"),
        ({"token_id:1": -1.0}, "expected top_logprobs with 'token_id:"),
        ("x", "the log-probability 'x'"),
        (float("nan"), "the log-probability nan"),
        (1.0, "the log-probability 1.0"),
    ],
)
def test_a_canary_without_its_ids_is_named(serving: Callable[..., Serves], tops: Any, said: str) -> None:
    server = serving()

    def answer(body: Body) -> Any:
        found = tops if tops is None or isinstance(tops, dict | list) else None
        asked = [{f"token_id:{i}": tops} for i in body.get("logprob_token_ids", ())]
        whole = completion([5], [-1.0])
        whole["choices"][0]["logprobs"]["top_logprobs"] = asked if found is None and tops is not None else found
        return whole

    server.routes["/v1/completions"] = answer
    with pytest.raises(OutsideError, match=f"policy 'p': .*{said}"):
        served(server)


def test_a_reply_is_held_to_the_room_it_was_given(serving: Callable[..., Serves]) -> None:
    server = serving()
    policy = make_policy({**FROZEN, "url": server.url, "max_tokens": 3}, name="p")
    server.routes["/v1/completions"] = replies(completion([5] * 4, [-1.0] * 4))
    policy.submit([(0, REQUESTS[0])])
    [(_, error)] = policy.collect()
    assert "GarbageError" in repr(error)
    assert "4 ids and 4 log-probabilities; expected 1 to 3, one each" in str(error)


FROZEN = {"kind": "vllm-server", "model": "tiny", "retries": 0}


def lists(server: Serves, **about: Any) -> None:
    """The server's one model, called otherwise."""
    server.routes["/v1/models"] = replies({"data": [about]})
    server.names = [about["id"]]


def test_a_frozen_policy_speaks_with_the_model_it_names(serving: Callable[..., Serves]) -> None:
    server = serving()
    lists(server, id="other", root="/models/other")
    expected = r"policy 'p': .* serves 'other' \(root '/models/other'\); expected 'tiny'; .* served = 'other'"
    with pytest.raises(OutsideError, match=expected):
        make_policy({**FROZEN, "url": server.url}, name="p")
    assert served(server).version == served(server).learner.version  # one that learns is held to its numbers


@pytest.mark.parametrize(
    ("about", "settings"),
    [
        ({"id": "x", "root": "tiny"}, {}),
        ({"id": "x", "root": str(Path("tiny").resolve())}, {}),
        ({"id": "x", "root": "/models/x"}, {"served": "x"}),
        ({"id": "x", "root": "/models/x"}, {"served": "/models/x"}),
        ({"id": "x"}, {"served": "*"}),
    ],
)
def test_a_model_may_be_called_otherwise(
    serving: Callable[..., Serves], about: dict[str, Any], settings: dict[str, Any]
) -> None:
    server = serving()
    lists(server, **about)
    assert make_policy({**FROZEN, "url": server.url, **settings}, name="p").version == "x"


def test_a_server_that_is_down(serving: Callable[..., Serves]) -> None:
    with pytest.raises(OutsideError, match="cannot be reached"):
        served(serving(), url="http://127.0.0.1:1/v1")


def test_a_server_that_takes_no_weights_is_named(serving: Callable[..., Serves]) -> None:
    server = serving({"rank": 4})
    del server.routes["/reset_prefix_cache"]
    with pytest.raises(OutsideError, match="has no /reset_prefix_cache; start it with VLLM_SERVER_DEV_MODE=1"):
        served(server, {"rank": 4})


def test_a_server_with_an_older_adapter_is_refused(serving: Callable[..., Serves]) -> None:
    server = serving({"rank": 4})
    policy = served(server, {"rank": 4})
    server.routes["/v1/load_lora_adapter"] = lambda body: server.names.append(body["lora_name"])  # and reads nothing
    Learner(policy, LearnerConfig(rate=1e-1)).update([row(one, n) for n, one in enumerate(ask(policy, REQUESTS))])
    with pytest.raises(UserError, match=r"the log-probability -\d\S+ and the learner -\d\S+"):
        policy.hand_over()


def test_the_short_form(serving: Callable[..., Serves]) -> None:
    assert parse_engine("copy") == {"kind": "copy"}
    server = serving()
    assert parse_engine(f"vllm-server@{server.url}") == {"kind": "vllm-server", "url": server.url}
    spec = {"kind": "vllm-server", "model": "tiny", "url": server.url}
    assert parse_policy(f"p=vllm-server:tiny@{server.url}") == ("p", spec)
    assert parse_policy(f"p=vllm-server:tiny@{server.url}#KEY") == ("p", {**spec, "key_env": "KEY"})
    with pytest.raises(UserError, match="vllm-server was given 'tiny'; expected MODEL@URL, as in vllm-server:"):
        parse_policy("p=vllm-server:tiny")
    policy = make_policy(spec, name="p")
    assert isinstance(policy, VLLMServer)
    assert policy.version == "tiny"


def test_training_through_a_server(serving: Callable[..., Serves], tmp_path: Path) -> None:
    server = serving()
    words = ["train", "--env", "coalition_v0", "--arg", "preset=glove", "--policy", "planner=table:@a", "a=hf:tiny"]
    words += ["b=table:help", "c=table:help", "--engine", f"vllm-server@{server.url}", "--steps", "1", "--tasks", "1"]
    assert main([*words, "--group", "2", "--evaluate-tasks", "0", "-o", str(tmp_path)]) == 0
    steps = [one for one in read_metrics(tmp_path) if "reward" in one]
    assert all(one["hand_over"]["a"]["canary"] < 1e-5 for one in steps)
    assert server.version.endswith(".1")
