"""Stop strings on their way to vLLM, in validation and evaluation; what vLLM makes of them."""

import asyncio
import copy
from types import SimpleNamespace

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")
pytest.importorskip("vllm", reason="vLLM is not installed")

from seele.config import SeeleConfig
from seele.config.settings import RewardConfig
from seele.methods.sources import build_source
from seele.records import Completion, Finish, Grade, GradeReason, Instance
from seele.rollout.solutions import EncodedProblem
from seele.rollout.templates import STOP_STRINGS
from seele_eval.generation import EngineSettings, _sampling_params
from seele_eval.prompts import Prompt
from seele_models.tokenizer import byte_tokenizer
from seele_verl import rounds_worker as module
from seele_verl.engine.replica import RoundServer

# Token ids are positions here; the last one is a special token.
PIECES = ["\\boxed{4}", " User:", " \\boxed{7}", "<end>", "<|im_end|>"]
END, MARK = 3, 4


def decode(ids, *, skip_special_tokens):
    return "".join(PIECES[i] for i in ids if not (skip_special_tokens and i in (END, MARK)))


def worker():
    made = object.__new__(module.RoundsWorker)
    made.tokenizer = SimpleNamespace(decode=decode, eos_token_id=END)
    made.llm_client = None
    return made


@pytest.mark.parametrize(
    ("token_ids", "stop", "text", "finish"),
    [
        pytest.param([0, 1, 2, 2], STOP_STRINGS["r1_zero"], "\\boxed{4} ", Finish.STOP, id="runs on"),
        pytest.param([0, MARK, 2, 2], STOP_STRINGS["qwen"], "\\boxed{4}", Finish.STOP, id="a special token"),
        pytest.param([0, 2, END], STOP_STRINGS["qwen"], "\\boxed{4} \\boxed{7}", Finish.STOP, id="ends"),
        pytest.param([0, MARK, 2, 2], (), "\\boxed{4} \\boxed{7} \\boxed{7}", Finish.LENGTH, id="training"),
    ],
)
def test_nothing_behind_a_stop_string_is_graded_in_validation(token_ids, stop, text, finish):
    output = SimpleNamespace(token_ids=token_ids, log_probs=None, extra_fields={})
    completion = worker()._completion(output, 4, stop)
    assert (completion.text, completion.finish) == (text, finish)
    assert completion.token_ids == tuple(token_ids)


@pytest.mark.parametrize(
    ("text", "begins", "graded"),
    [
        ("\\boxed{1}</think> so \\boxed{2}", True, " so \\boxed{2}"),
        ("\\boxed{1}, and on", True, ""),
        ("\\boxed{1}, and on", False, "\\boxed{1}, and on"),
    ],
)
def test_only_what_stands_behind_the_thoughts_is_graded_where_asked_for(text, begins, graded):
    asked = []
    made = worker()
    made.begins_thinking = begins

    async def grade_rollout(text, instance, *, hint_steps):
        asked.append(text)
        return Grade(False, GradeReason.NO_ANSWER)

    made.grader = SimpleNamespace(grade_rollout=grade_rollout)
    for after_thinking in (True, False):
        made.seele = SeeleConfig(method="luffy", reward=RewardConfig(after_thinking=after_thinking))
        completion = Completion(text=text, token_ids=(1,), log_probs=(0.0,), finish=Finish.STOP)
        asyncio.run(made._grade(completion, None, hint_steps=0))
    assert asked == [graded, text]


@pytest.mark.parametrize("stop", [(), ("User:",)])
def test_the_engine_is_told_where_a_validated_response_ends(monkeypatch, stop):
    told = []

    async def generate_round(client, *, sampling_params, **_):
        told.extend(sampling_params)
        yield {0: SimpleNamespace(token_ids=[0, END], log_probs=None, extra_fields={"global_steps": 1})}

    async def sample():
        parts = worker()._sample(
            [1], {"temperature": 0}, max_tokens=9, session_id="s", seeds=[5], quorum=1, stop=stop
        )
        return [part async for part in parts]

    monkeypatch.setattr(module, "generate_round", generate_round)
    asyncio.run(sample())
    ends = {"stop": ["User:"], "skip_special_tokens": False} if stop else {}
    assert told == [{"temperature": 0, "max_tokens": 9, "seed": 5, **ends}]


def test_only_validation_stops(monkeypatch):
    """The published methods train on whole rollouts."""
    asked = []

    async def run_rounds(instance, *, sample, **_):
        parts = sample(hint_steps=0, round_index=0, first_rollout=0, num_rollouts=1, quorum=1)
        return [part async for part in parts]

    async def sample(*_, stop, **__):
        asked.append(stop)
        raise RuntimeError("seen enough")
        yield

    monkeypatch.setattr(module, "run_rounds", run_rounds)
    encoded = EncodedProblem(prompt_ids=[1], step_ids=[], moved_cuts=0)
    monkeypatch.setattr(module, "encode_problem", lambda *_: encoded)
    made = worker()
    made.seele, made.stop, made._sample = SeeleConfig(method="grpo"), ("User:",), sample
    made.source = build_source(made.seele.off_policy)
    made.rollout_config = SimpleNamespace(response_length=9, val_kwargs=SimpleNamespace(n=1))
    made.controller = made.cache = None
    instance = Instance(instance_id="i", data_source="d", question="q", steps=(), answer="1")
    problem = {"uid": "u", "instance": instance, "global_steps": 1}
    for validate in (True, False):
        with pytest.raises(RuntimeError, match="seen enough"):
            asyncio.run(made._roll_out(problem, {}, validate=validate))
    assert asked == [("User:",), ()]


class Server:
    """``RoundServer`` that keeps what its engine is asked for."""

    _requests = RoundServer._requests

    async def generate(self, *, prompt_ids, sampling_params, request_id):
        return sampling_params


def test_vllm_makes_text_only_where_a_stop_string_is_searched_in_it():
    from vllm import SamplingParams

    rounds = [{"seed": 1}, {"seed": 2, "stop": ["User:"], "skip_special_tokens": False}]

    async def ask():
        return await asyncio.gather(*Server()._requests([1], copy.deepcopy(rounds), "r"))

    params = asyncio.run(ask())
    assert [each["detokenize"] for each in params] == [False, True]
    # vLLM refuses a stop string without text.
    assert [SamplingParams(**each).stop for each in params] == [[], ["User:"]]


def sampled(text, stop):
    """What vLLM makes of a generated text and the end of a sequence: its text, and the first string found."""
    from vllm.v1.engine.detokenizer import IncrementalDetokenizer

    tokenizer = byte_tokenizer()
    prompt = Prompt(token_ids=[1], temperature=0.0, seed=0, stop=stop)
    params = _sampling_params(prompt, EngineSettings(max_tokens=99))
    request = SimpleNamespace(
        sampling_params=params, prompt_token_ids=[1], prompt_embeds=None, request_id="r", external_req_id="r"
    )
    detokenizer = IncrementalDetokenizer.from_new_request(tokenizer, request)
    token_ids = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
    found = (detokenizer.update([token], False) for token in token_ids)
    first = next(filter(None, found), None)
    return detokenizer.get_next_output_text(finished=True, delta=False), first


def test_vllm_ends_an_evaluated_response_before_the_string():
    assert sampled("\\boxed{4}. User:", STOP_STRINGS["prime"]) == ("\\boxed{4}. ", "User:")


def test_vllm_finds_a_stop_string_that_is_a_special_token():
    mark = byte_tokenizer().eos_token
    assert sampled("\\boxed{4}", (mark,)) == ("\\boxed{4}", mark)
    # Without stop strings the text is as ever.
    assert sampled("\\boxed{4}", ()) == ("\\boxed{4}", None)
