import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from macredit.agents import HF, make_policies, make_policy, parse_policy
from macredit.errors import UserError
from macredit.learn import Learner, LearnerConfig, TrainRow
from macredit.policy import Chat, Request, Said
from macredit.seeds import Key

torch = pytest.importorskip("torch")
torch.set_num_threads(1)


def tiny(**settings: object) -> HF:
    policy = make_policy({"kind": "hf", "model": "tiny", "max_tokens": 6, **settings}, name="p")
    assert isinstance(policy, HF)
    return policy


def asked(group: int, prompt: str = "hello", role: str = "You help.") -> Request:
    return Request("a", (Chat("system", role), Chat("user", prompt)), Key(0, "t", group))


def row(said: Said, advantage: float = 1.0, sequence: int = 0) -> TrainRow:
    assert said.prompt_ids is not None
    assert said.token_ids is not None
    ids = np.array(said.prompt_ids + said.token_ids)
    mask = np.arange(len(ids)) >= len(said.prompt_ids)
    logprob = np.zeros(len(ids))
    if said.logprobs is not None:
        logprob[mask] = said.logprobs
    return TrainRow(ids, mask, logprob, advantage, 1.0, sequence)


def follow_up(said: Said, prompt: str = "more") -> Request:
    first = asked(0)
    talk = (*first.messages, Chat("assistant", said.text), Chat("user", prompt))
    return Request("a", talk, first.key, call=1, after=said)


def test_the_same_batch_gives_the_same_bits() -> None:
    batch = [asked(g, "hi" * (g % 3)) for g in range(12)]
    first, again = tiny().say(batch), tiny().say(batch)
    assert first == again
    assert len({said.text for said in first}) == 12  # members of a group answer differently
    assert all(said.finish == "stop" or len(said.token_ids or ()) == 6 for said in first)


def test_other_batches_agree_to_rounding() -> None:
    batch = [asked(g, "hi" * (g % 3)) for g in range(6)]
    policy = tiny()
    together = policy.say(batch)
    alone = [policy.say([request])[0] for request in batch]
    grouped = tiny(batch_tokens=60).say(batch)  # padded lengths near 30: two at a time
    for one, two, three in zip(together, alone, grouped, strict=True):
        assert one.token_ids == two.token_ids == three.token_ids
        assert one.logprobs == pytest.approx(two.logprobs, abs=1e-5)


def test_logprobs_are_those_of_the_sampled_ids() -> None:
    policy = tiny(sampling={"temperature": 0.7})
    said = policy.say([asked(0)])[0]
    ids = torch.tensor([[*(said.prompt_ids or ()), *(said.token_ids or ())]])
    with torch.no_grad():
        whole = torch.log_softmax(policy.module(input_ids=ids).logits.float() / 0.7, -1)[0]
    start = len(said.prompt_ids or ()) - 1
    expected = [whole[start + j, token].item() for j, token in enumerate(said.token_ids or ())]
    assert said.logprobs == pytest.approx(expected, abs=1e-5)
    assert policy.logprobs([row(said)])[0][start + 1 :] == pytest.approx(expected, abs=1e-5)
    assert said.sampling == {"temperature": 0.7, "max_tokens": 6}


def test_ids_go_on_where_they_ended() -> None:
    policy = tiny()
    said = policy.say([asked(0)])[0]
    prompt = policy.voice.template.prompt(follow_up(said))
    before = (said.prompt_ids or ()) + (said.token_ids or ())
    assert prompt[: len(before)] == before
    assert policy.tokenizer.decode(prompt[len(before) :]) == "<|end|><|user|>more<|end|><|assistant|>"
    ended = Said(said.text, said.prompt_ids, (*(said.token_ids or ()), policy.tokenizer.eos_token_id))
    assert policy.voice.template.prompt(follow_up(ended)) == prompt  # the sampled end is not written twice
    other = Said(said.text)  # said by somebody without ids: rendered from the text
    assert policy.tokenizer.decode(policy.voice.template.prompt(follow_up(other))).endswith(
        "<|user|>more<|end|><|assistant|>"
    )


def test_stops_at_the_end_token() -> None:
    policy = tiny(max_tokens=2000)
    said = policy.say([asked(g) for g in range(4)])
    stopped = [s for s in said if s.finish == "stop"]
    assert stopped
    assert all(s.token_ids and s.token_ids[-1] == policy.tokenizer.eos_token_id for s in stopped)
    assert not any("<|end|>" in s.text for s in said)


def test_distribution_matches_the_model() -> None:
    policy = tiny(max_tokens=1)
    said = policy.say([asked(g) for g in range(2000)])
    counts = np.bincount([s.token_ids[0] for s in said if s.token_ids], minlength=261)
    with torch.no_grad():
        p = torch.softmax(policy.module(input_ids=torch.tensor([said[0].prompt_ids])).logits[0, -1], -1).numpy()
    top = np.argsort(p)[-5:]
    assert np.all(np.abs(counts[top] - 2000 * p[top]) < 5 * np.sqrt(2000 * p[top]))


def test_truncated_sampling() -> None:
    batch = [asked(g) for g in range(300)]
    with torch.no_grad():
        prompt = torch.tensor([tiny().voice.template.prompt(batch[0])])
        p = torch.softmax(tiny().module(input_ids=prompt).logits[0, -1], -1).numpy()
    order = np.argsort(-p)
    nucleus = order[: 1 + int(np.searchsorted(np.cumsum(p[order]), 0.1))]  # the fewest with at least 0.1
    assert len(nucleus) > 2
    for sampling, kept in (({"top_k": 3}, order[:3]), ({"top_p": 0.1}, nucleus)):
        said = tiny(max_tokens=1, sampling=sampling).say(batch)
        assert {s.token_ids[0] for s in said if s.token_ids} == set(kept)
        for s in said:
            assert s.token_ids is not None
            assert s.logprobs == pytest.approx((np.log(p[s.token_ids[0]] / p[kept].sum()),), abs=1e-4)
    greedy = tiny(sampling={"temperature": 0}).say(batch[:3])
    assert len({s.text for s in greedy}) == 1
    assert greedy[0].logprobs == (0.0,) * len(greedy[0].token_ids or ())


def test_no_room_for_a_reply() -> None:
    policy = tiny()
    policy.voice.context = 20
    said = policy.say([asked(0, "x" * 30), asked(1, "")])
    assert (said[0].text, said[0].finish, said[0].token_ids) == ("", "length", ())
    assert len(said[1].token_ids or ()) == 20 - len(said[1].prompt_ids or ())


def test_what_engines_are_asked_for() -> None:
    policy = tiny(sampling={"top_k": 3, "top_p": 0.5})
    prompt = policy.voice.template.prompt(asked(0))
    first, again, other = (policy.voice.wanted(prompt, request) for request in (asked(0), asked(0), asked(1)))
    assert first is not None
    assert other is not None
    assert first == again
    assert first["seed"] != other["seed"]  # the call's own randomness
    end = policy.tokenizer.eos_token_id
    assert {**first, "seed": 0} == {"max_tokens": 6, "stop_token_ids": [end], "top_k": 3, "top_p": 0.5, "seed": 0}
    policy.voice.context = len(prompt) + 2
    short = policy.voice.wanted(prompt, asked(0))
    assert short is not None
    assert short["max_tokens"] == 2
    policy.voice.context = len(prompt)
    assert policy.voice.wanted(prompt, asked(0)) is None


REWRITING = (
    "{% for m in messages %}<|{{ m.role }}|>"
    "{% if m.role == 'assistant' %}{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}{% endif %}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
NO_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "[{{ m.role }}]{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)


def test_a_template_that_rewrites_history_is_named() -> None:
    with pytest.raises(UserError, match="template of 'tiny' rewrites history"):
        tiny(template=REWRITING)
    policy = tiny(template=REWRITING, history="render")
    said = Said("<think>hm</think>yes", (1,), (2,))
    assert policy.tokenizer.decode(policy.voice.template.prompt(follow_up(said))) == (
        "<|system|>You help.<|end|><|user|>hello<|end|><|assistant|>yes<|end|><|user|>more<|end|><|assistant|>"
    )


def test_a_template_without_system_messages() -> None:
    prompt = tiny(template=NO_SYSTEM).say([asked(0)])[0].prompt_ids
    assert tiny().tokenizer.decode(prompt) == "[user]You help.\n\nhello<|end|>[assistant]"


@pytest.mark.parametrize("lora", [None, {"rank": 4}])
def test_an_export_gives_the_same_logits(tmp_path: Path, lora: dict[str, int] | None) -> None:
    policy = tiny(lora=lora)
    rows = [row(said, g % 2, g) for g, said in enumerate(policy.say([asked(g) for g in range(4)]))]
    Learner(policy).update(rows)
    policy.export(tmp_path / "p")
    if lora:
        assert json.loads((tmp_path / "p" / "adapter_config.json").read_text())["r"] == 4
    name, spec = parse_policy(f"other={tmp_path / 'p'}")
    again = make_policy(spec, name=name)
    assert isinstance(again, HF)
    for one, two in zip(policy.logprobs(rows), again.logprobs(rows), strict=True):
        assert np.array_equal(one, two)
    assert again.version != tiny(lora=lora).version
    if lora:
        with pytest.raises(UserError, match="is a trained adapter"):
            tiny(model=str(tmp_path / "p"), lora=lora)


def test_adapters_share_the_base() -> None:
    spec = {"kind": "hf", "model": "tiny", "lora": {"rank": 4}}
    made = make_policies({"p": spec, "s": spec, "own": {"kind": "hf", "model": "tiny"}})
    p, s, own = (made[name] for name in ("p", "s", "own"))
    assert isinstance(p, HF)
    assert isinstance(s, HF)
    assert isinstance(own, HF)
    assert p.module is s.module
    assert p.module.get_base_model() is not own.module
    rows = [row(p.say([asked(0)])[0])]
    assert np.array_equal(p.logprobs(rows)[0], own.logprobs(rows)[0])  # adapters start as the identity


def test_dictated_ids() -> None:
    policy = tiny()
    said = policy.dictate(asked(0), "yes")
    assert policy.tokenizer.decode(said.token_ids) == "yes<|end|>"
    assert said.prompt_ids == policy.say([asked(0)])[0].prompt_ids
    learner = Learner(policy, LearnerConfig(rate=1e-2))
    losses = [learner.imitate([row(said)])["loss"] for _ in range(10)]
    assert losses[-1] < losses[0] / 5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "no/such-folder.gguf"}, "is no folder"),
        ({"model": "./no-such-folder"}, "is no folder"),
        ({"sampling": {"temprature": 1}}, "expected one of temperature"),
        ({"sampling": {"top_p": 2}}, "above 0, at most 1"),
        ({"model": "tiny", "dtype": "float8"}, "unknown dtype"),
        ({"max_tokens": 0}, "1 or more"),
        ({"lora": {"rnk": 2}}, "Did you mean 'rank'"),
        ({"history": "last"}, "'grow' or 'render'"),
        ({"lora": 16}, r"lora of policy 'p' was given as 16; expected a table such as \{ rank = 16 \}"),
        ({"lora": {"rank": -3}}, "lora.rank was given as -3; expected a whole number of at least 1"),
        ({"lora": {"rank": True}}, "lora.rank was given as True"),
        ({"lora": {"targets": 5}}, 'lora.targets was given as 5; expected a list of layers, or "all-linear"'),
        ({"lora": {"targets": ["q_proj", "zzz"]}}, "LoRA looked for 'zzz' in 'tiny'"),
        ({"lora": {"targets": "("}}, r"LoRA looked for '\(' in 'tiny'"),
        ({"lora": {"alpha": "x"}}, "lora.alpha was given as 'x'; expected a finite number of at least 0.001"),
        ({"lora": {"alpha": 0}}, "lora.alpha was given as 0"),
        ({"lora": {"alpha": float("nan")}}, "lora.alpha was given as nan"),
        ({"max_tokens": "5"}, "max_tokens of policy 'p' was given as '5'; expected a whole number"),
        ({"max_tokens": 2.5}, "max_tokens of policy 'p' was given as 2.5"),
        ({"batch_tokens": 0}, "batch_tokens of policy 'p' was given as 0; expected a whole number of at least 1"),
        ({"sampling": 3}, "sampling of policy 'p' was given as 3; expected a table"),
        ({"sampling": {"temperature": True}}, "'temperature' was given as True"),
        ({"sampling": {"temperature": float("inf")}}, "'temperature' was given as inf"),
        ({"dtype": 32}, "dtype of policy 'p' was given as 32; expected a text"),
        ({"device": "nonsense"}, "device was given as 'nonsense', where torch can put nothing .*; expected cpu"),
        ({"device": f"cuda:{torch.cuda.device_count()}"}, "device was given as 'cuda:.*; expected cpu"),
        ({"template": 5}, "template of policy 'p' was given as 5; expected a text"),
        ({"template": "{{"}, "template of 'tiny' cannot be rendered .TemplateSyntaxError: .*mend template"),
        ({"template": "{{ raise_exception(3) }}"}, "template of 'tiny' cannot be rendered .TemplateError: 3"),
        ({"template": "{{ 1 / 0 }}"}, "template of 'tiny' cannot be rendered .ZeroDivisionError"),
        ({"template_settings": 3}, "template_settings of policy 'p' was given as 3; expected a table"),
        ({"template_settings": {"tokenize": True}}, "cannot be rendered .TypeError: .*'tokenize'"),
        ({"model": 3}, "model of policy 'p' was given as 3; expected a text"),
        ({"engine": ["copy"]}, "engine was given as .'copy'.; expected a kind of copy, vllm, vllm-server"),
        ({"engine": {}}, r"engine was given as \{\}; expected a kind of copy, vllm, vllm-server"),
        ({"engine": ""}, "unknown engine ''; expected one of copy, vllm, vllm-server"),
        ({"engine": {"kind": "copy", "max_tokens": "5"}}, "max_tokens of policy 'p' was given as '5'"),
        ({"shards": "two"}, "policy 'p' was given shards = 'two'; expected 2 or more"),
        ({"ngine": "copy"}, "expected one of batch_tokens, .* engine, .* shards, .*Did you mean 'engine'"),
    ],
)
def test_bad_settings(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        tiny(**settings)


def test_without_torch_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import macredit.learn, macredit.agents as a\n"
        "a.make_policy({'kind': 'table', 'replies': ['x']}); print([m for m in sys.modules if m[:5] == 'torch'])\n"
        "try: a.make_policy({'kind': 'hf', 'model': 'tiny'})\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[0] == "['torch']"
    assert "UserError" in out
    assert 'pip install "macredit[train]"' in out


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no folder"):
        make_policy({"kind": "hf", "model": str(tmp_path)}, name="p")


@pytest.mark.parametrize("targets", [["query_key_value"], "no_such_.*"])
def test_layers_that_an_adapter_does_not_find_are_named(targets: object) -> None:
    with pytest.raises(UserError, match=r"LoRA looked for .*(query_key_value|no_such).* in 'tiny'.*q_proj") as told:
        tiny(lora={"rank": 2, "targets": targets})
    assert "LlamaForCausalLM" in str(told.value)


def test_large_numbers_are_no_trouble() -> None:
    assert tiny(max_tokens=10**400, lora={"rank": 1, "alpha": 1, "targets": ["q_proj"]}).adapter == "policy-p"
    with pytest.raises(UserError, match=r"lora.alpha was given as 1000.*; expected a finite number"):
        tiny(lora={"alpha": 10**400})


@pytest.mark.parametrize("temperature", [1.0, 0])
def test_weights_that_are_no_numbers_say_nothing(temperature: float) -> None:
    policy = tiny(sampling={"temperature": temperature})
    with torch.no_grad():
        policy.module.lm_head.weight[3] = float("nan")
    with pytest.raises(UserError, match=r"policy 'p' \(float32\) gives .* the log-probability nan; expected a finite"):
        policy.say([asked(0)])
