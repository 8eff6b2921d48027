"""The folder that ``seele export`` writes: files, card, what it refuses. Uploads are in test_hub."""

import hashlib
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from seele.data.storage.schema import write_problems
from seele.errors import CheckpointError, ConfigError
from seele.export.folder import Wish, export
from seele.export.prompt import PromptForm, render_snippet
from seele.records import BOX_REQUEST, Chat, Instance
from seele.rollout.templates import TEMPLATES, render_prompt

WEIGHTS = b"weights of step 4"
DEFAULTS = {
    "seele.hints.rounds": 4,
    "seele.max_generated_tokens": None,
    "data.train_batch_size": 256,
    "actor_rollout_ref.actor.optim.lr": 1e-6,
    "key.that.the.run.has.not": 1,
}
PROBLEMS = [
    Instance(
        instance_id=str(i), data_source="sums", question=f"{i} + {i}?", steps=("a", "b"), answer=str(2 * i)
    )
    for i in range(3)
]
APACHE = "\n Apache License\n   Version 2.0, January 2004\n"


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


@pytest.fixture
def base(tmp_path):
    folder = tmp_path / "models" / "small-base"
    write(folder / "config.json", {})
    write(folder / "README.md", "---\nlicense: llama3.2\nlicense_link: https://example.org/l\n---\n# Base\n")
    write(folder / "LICENSE", APACHE)
    return folder


@pytest.fixture
def run(tmp_path, base):
    """A finished run of four steps with its last checkpoint."""
    run, data = tmp_path / "runs" / "tiny", tmp_path / "data"
    train = data / "train.parquet"
    write_problems(train, PROBLEMS, split="train")
    sha256 = hashlib.sha256(train.read_bytes()).hexdigest()
    origin = {"hub": "someone/problems", "revision": "main"}
    entry = {"file": "train.parquet", "origin": origin, "problems": 32, "sha256": sha256}
    write(data / "manifest.json", {"title": "Problems", "licence": "MIT", "splits": {"train": entry}})
    settings = {
        "seele": {
            "method": "grpo",
            "hints": {"rounds": 2},
            "max_generated_tokens": None,
            "prompt": {"template": "plain"},
        },
        "data": {"train_files": [str(train)], "train_batch_size": 256, "max_response_length": 96},
        "actor_rollout_ref": {"model": {"path": str(base)}, "actor": {"optim": {"lr": "1e-6"}}},
        "trainer": {"total_training_steps": 8, "nnodes": 1},
    }
    write(run / "resolved.yaml", yaml.safe_dump(settings))
    card = {
        "status": "finished",
        "steps": 4,
        "seed": 7,
        "num_problems": 31,
        "parameters": 460544,
        "commit": "abc123+changes",
        "hardware": {"gpus": ["H100", "H100"], "cpu": "x", "cpu_cores": 2},
        "versions": {"verl": "0.9.1"},
    }
    write(run / "run_card.json", card)
    rows = [{"step": step, "tokens/generated": 1000, "timing_s/step": 360} for step in (1, 2, 3, 4)]
    write(run / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    for step in (2, 4):
        (run / f"global_step_{step}").mkdir()
    return run


def scores(weights=WEIGHTS, template="plain"):
    return {
        "conditions": {
            "weights_sha256": {"model.safetensors": hashlib.sha256(weights).hexdigest()},
            "template": template,
            "max_tokens": 96,
            "benchmarks": {"gsm8k": {"hub": "openai/gsm8k", "revision": "e53f0488"}},
        },
        "scores": [
            {
                "benchmark": "gsm8k",
                "temperature": 0.0,
                "problems": 1319,
                "samples": 1,
                "accuracy": 0.41234,
                "interval_95": [0.38, 0.445],
                "mean_response_tokens": 60.4,
                "truncated_share": 0.05,
                "no_answer_share": 0.0,
            }
        ],
    }


class Merger:
    """Stands in for the bindings: writes a merged model, as verl's merger would."""

    def __init__(self):
        self.asked = []

    def __call__(self, run, step):
        self.asked.append(step)
        merged = run / "merged"
        shutil.rmtree(merged, ignore_errors=True)
        step = 4 if step is None else step
        write(merged / "config.json", {"dtype": "float32"})
        (merged / "model.safetensors").write_bytes(f"weights of step {step}".encode())
        for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json"):
            write(merged / name, {})
        write(merged / "chat_template.jinja", "{{ messages }}")
        write(merged / "merged_step.txt", str(step))
        write(merged / "eval" / "scores.json", {})
        return merged


def make(run, out=None, merger=None, **choices):
    """Export, and return the notes, the card's text and its front matter."""
    wish = Wish(run=run, out=out or run / "export", **choices)
    notes = export(wish, merge=merger or Merger(), defaults=lambda method: DEFAULTS)
    card = (wish.out / "README.md").read_text()
    return notes, card, yaml.safe_load(card.split("---\n")[1])


def section(card, title):
    return card.split(f"## {title}\n")[1].split("\n## ")[0]


# What is written


def test_the_folder_has_the_model_its_tokenizer_and_the_licence_and_nothing_of_the_run(run):
    make(run)
    names = {entry.name for entry in (run / "export").iterdir()}
    model = {"config.json", "generation_config.json", "model.safetensors"}
    tokenizer = {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}
    assert names == {*model, *tokenizer, "LICENSE", "README.md", "seele_export.json"}
    assert (run / "export" / "model.safetensors").read_bytes() == WEIGHTS
    assert not [entry for entry in run.iterdir() if entry.name.startswith(".")]


def test_the_card_says_data_method_settings_and_costs(run):
    _, card, front = make(run, name="someone/tiny-model")
    assert front["datasets"] == ["someone/problems"]
    assert (front["library_name"], front["pipeline_tag"]) == ("transformers", "text-generation")
    sha256 = hashlib.sha256((run.parents[1] / "data" / "train.parquet").read_bytes()).hexdigest()
    data = section(card, "Training data")
    assert f"| `train.parquet` | Problems | MIT | 3 | `{sha256}` |" in data
    assert "\n31 problems were kept for training.\n" in data
    training = section(card, "Training")
    for said in ("`grpo`", "4,000", "0.40", "2 x H100", "| 7 |", "`abc123`, with uncommitted", "verl 0.9.1"):
        assert said in training
    # Equal values are not named, however YAML writes them; nor keys that the run has not.
    changed = [line for line in training.splitlines() if line.startswith("| `")]
    assert changed == ["| `seele.hints.rounds` | `2` | `4` |"]
    assert "unfinished" not in card and "intermediate" not in card


def test_no_path_of_the_machine_is_in_the_card(run, tmp_path):
    for out in (None, tmp_path / "elsewhere" / "model"):
        _, card, _ = make(run, out)
        assert str(tmp_path) not in card


def test_an_earlier_step_is_merged_and_counts_only_what_came_before(run):
    merger = Merger()
    notes, card, _ = make(run, step=2, merger=merger)
    assert merger.asked == [2]
    assert "2,000" in section(card, "Training") and "4,000" not in card
    assert "the run continued to step 4" in card
    assert any("run continued" in note for note in notes)
    assert json.loads((run / "export" / "seele_export.json").read_text())["step"] == 2


def test_a_merged_model_stands_for_checkpoints_that_are_gone(run):
    Merger()(run, 4)
    for folder in run.glob("global_step_*"):
        folder.rmdir()
    merger = Merger()
    make(run, merger=merger)
    assert merger.asked == []


@pytest.mark.parametrize("status", ["running", "failed"])
def test_an_unfinished_run_is_said_to_be_one(run, status):
    card = json.loads((run / "run_card.json").read_text())
    write(run / "run_card.json", card | {"status": status})
    notes, text, _ = make(run)
    said = f"unfinished when this was exported (status: {status}); at most 8 steps were planned"
    assert said in text and said in " ".join(notes)


def test_two_stages_name_the_first_ones_base_model_and_problems(run, base):
    settings = yaml.safe_load((run / "resolved.yaml").read_text())
    settings["seele"]["method"] = "sft_rl"
    write(run / "sft" / "resolved.yaml", yaml.safe_dump(settings))
    write(run / "sft" / "run_card.json", {"steps": 12})
    settings["actor_rollout_ref"]["model"]["path"] = str(run / "sft" / "merged")
    settings["data"]["train_files"] = [str(run / "problems" / "rl" / "0-train.parquet")]
    write(run / "resolved.yaml", yaml.safe_dump(settings))
    _, card, _ = make(run)
    assert "`small-base`" in section(card, "Base model")
    data = section(card, "Training data")
    assert data.index("`train.parquet`") < data.index("`0-train.parquet`")
    assert "31 problems" not in data, "the number of the second stage alone"
    assert "| supervised steps before | 12 |" in section(card, "Training")


def test_a_file_that_is_not_the_manifests_has_no_licence_from_it(run):
    train = run.parents[1] / "data" / "train.parquet"
    write_problems(train, PROBLEMS[:2], split="train")
    _, card, front = make(run)
    assert "| `train.parquet` | sums | unknown | 2 |" in section(card, "Training data")
    assert "datasets" not in front
    train.unlink()
    assert "| `train.parquet` | unknown | unknown | unknown | unknown |" in make(run)[1]


# Scores


def test_scores_of_these_weights_are_in_the_card_with_their_intervals(run):
    write(run / "eval" / "scores.json", scores())
    _, card, front = make(run)
    assert "| gsm8k | greedy | 1,319 | 41.2 (38.0 to 44.5) | 60.4 | 5.0 |" in card
    assert "template plain, at most tokens 96" in card
    (result,) = front["model-index"][0]["results"]
    assert result["dataset"] == {"name": "gsm8k", "type": "openai/gsm8k", "revision": "e53f0488"}
    (metric,) = result["metrics"]
    assert (metric["type"], metric["value"]) == ("accuracy", 41.23)
    assert "38.0 to 44.5" in metric["name"]


def test_the_hubs_own_reader_understands_the_card(run):
    hub = pytest.importorskip("huggingface_hub")
    write(run / "eval" / "scores.json", scores())
    make(run, base_model="Owner/small-base")
    data = hub.ModelCard.load(run / "export" / "README.md").data
    assert (data.license, data.base_model) == ("llama3.2", "Owner/small-base")
    (result,) = data.eval_results
    assert (result.dataset_type, result.metric_value) == ("openai/gsm8k", 41.23)


def test_files_that_an_evaluation_does_not_load_do_not_hide_its_scores(run):
    def with_older_weights(run, step):
        merged = Merger()(run, step)
        (merged / "pytorch_model.bin").write_bytes(WEIGHTS)
        return merged

    write(run / "eval" / "scores.json", scores())
    notes, card, _ = make(run, merger=with_older_weights)
    assert "41.2" in card and not any("not measured" in note for note in notes)


@pytest.mark.parametrize("measured", [None, b"weights of step 2"], ids=["nothing", "other weights"])
def test_a_model_that_was_not_evaluated_is_said_to_be_so_with_the_command_that_does_it(run, measured):
    if measured:
        write(run / "eval" / "scores.json", scores(measured))
    notes, card, front = make(run)
    said = section(card, "Evaluation")
    assert "Not evaluated" in said and "\nCKPT_DIR=RUN LAST_STEP=4 bash scripts/eval.sh\n" in said
    assert "RUN is the folder of the run `tiny`:" in said
    assert "41.2" not in card and "model-index" not in front
    assert any("not measured on these weights" in note for note in notes) is (measured is not None)


def test_scores_of_an_earlier_step_are_found_beside_the_curve(run):
    write(run / "eval" / "step_2" / "scores.json", scores(b"weights of step 2"))
    assert "41.2" in make(run, step=2)[1]


# Licence


def test_the_base_models_card_states_the_licence(run):
    _, card, front = make(run)
    assert front["license"] == "llama3.2" and front["license_link"] == "https://example.org/l"
    assert "card" in section(card, "Licence")


def test_or_else_its_licence_file(run, base):
    (base / "README.md").unlink()
    assert make(run)[2]["license"] == "apache-2.0"
    terms = "Some Community Terms\n\nBe kind.\nBased in part on the Apache License Version 2.0.\n"
    write(base / "LICENSE", terms)
    front = make(run)[2]
    assert (front["license"], front["license_name"]) == ("other", "Some Community Terms")
    assert (run / "export" / front["license_link"]).read_text().startswith("Some Community")


def test_or_else_it_is_unknown_and_said_to_be(run, base):
    for name in ("README.md", "LICENSE"):
        (base / name).unlink()
    notes, card, front = make(run)
    assert front["license"] == "unknown" and "Unknown." in section(card, "Licence")
    assert any("--licence" in note for note in notes)


def test_a_licence_that_was_chosen_comes_first(run):
    _, card, front = make(run, licence="Apache-2.0")
    assert front["license"] == "apache-2.0" and "license_link" not in front
    assert "Chosen" in section(card, "Licence")
    with pytest.raises(ConfigError, match="--licence do as you like: expected"):
        make(run, licence="do as you like")


def test_a_base_model_on_the_hub_is_linked_and_its_licence_read_from_the_cache(run, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    cached = tmp_path / "cache" / "models--Owner--Base"
    write(cached / "refs" / "main", "c0ffee")
    write(cached / "snapshots" / "c0ffee" / "README.md", "---\nlicense: [mit]\n---\n")
    for path in ("Owner/Base", str(cached / "snapshots" / "c0ffee")):
        settings = yaml.safe_load((run / "resolved.yaml").read_text())
        settings["actor_rollout_ref"]["model"]["path"] = path
        write(run / "resolved.yaml", yaml.safe_dump(settings))
        _, card, front = make(run)
        assert (front["base_model"], front["license"]) == ("Owner/Base", "mit")
        assert "https://huggingface.co/Owner/Base" in card


# What is refused


def refused(run, match, error=ConfigError, **choices):
    """The export is refused before anything is merged, and leaves nothing new."""
    merger, before = Merger(), sorted(run.rglob("*"))
    with pytest.raises(error, match=match):
        make(run, merger=merger, **choices)
    assert merger.asked == [] and sorted(run.rglob("*")) == before


def test_what_is_no_run_folder_is_refused(run, tmp_path):
    refused(tmp_path, "not a run folder", CheckpointError)
    (run / "resolved.yaml").unlink()
    refused(run, r"resolved\.yaml lacks", CheckpointError)


def test_a_checkpoint_that_cannot_be_merged_leaves_nothing(run):
    def no_checkpoint(run, step):
        raise CheckpointError("no complete checkpoint")

    before = sorted(run.rglob("*"))
    with pytest.raises(CheckpointError, match="no complete"):
        make(run, merger=no_checkpoint)
    assert sorted(run.rglob("*")) == before


def test_a_failure_half_way_keeps_the_export_that_was_there(run):
    make(run)
    before = {file: file.read_bytes() for file in (run / "export").iterdir()}

    def half(run, step):
        merged = Merger()(run, step)
        (merged / "model.safetensors").unlink()
        return merged

    with pytest.raises(CheckpointError, match="or weights"):
        make(run, merger=half)
    assert {file: file.read_bytes() for file in (run / "export").iterdir()} == before
    assert not [entry for entry in run.iterdir() if entry.name.startswith(".")]


def test_a_model_that_is_merged_again_while_it_is_copied_is_not_exported(run, monkeypatch):
    merged, copy = run / "merged", shutil.copy

    def copy_and_merge(file, target):
        copy(file, target)
        if Path(file).parent == merged:
            monkeypatch.setattr(shutil, "copy", copy)
            shutil.copytree(merged, again := run / "again")
            shutil.rmtree(merged)
            again.rename(merged)

    monkeypatch.setattr(shutil, "copy", copy_and_merge)
    with pytest.raises(CheckpointError, match="merged: was made again while it was copied"):
        make(run)
    assert not (run / "export").exists()


def test_an_export_is_replaced_unless_it_was_changed_since(run):
    out = run / "export"
    make(run)
    assert make(run, step=2)[1] == (out / "README.md").read_text()
    write(out / "eval" / "scores.json", {})
    write(out / "README.md", (out / "README.md").read_text() + "My own words.\n")
    write(out / "config.json", json.loads((out / "config.json").read_text()) | {"mine": 1})
    refused(run, r"README\.md, config\.json, eval/scores\.json have changed since the export")
    make(run, overwrite=True)
    assert not (out / "eval").exists()


def test_what_an_export_that_was_killed_left_is_put_back(run):
    out = run / "export"
    make(run)
    out.rename(run / ".export.old")
    with pytest.raises(ZeroDivisionError):
        export(Wish(run=run, out=out), merge=lambda *_: 1 / 0, defaults=lambda _: DEFAULTS)
    assert (out / "README.md").is_file() and not (run / ".export.old").exists()


def test_a_mount_point_is_refused_before_anything_is_merged(run, monkeypatch):
    (run / "export").mkdir()
    monkeypatch.setattr(type(run), "is_mount", lambda path: path.name == "export")
    refused(run, "is a mount point, which cannot be replaced; name a folder in it")


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_something_else_is_never_replaced(run, base, overwrite):
    write(run / "mine" / "notes.txt", "")
    refused(run, "nor an export", out=run / "mine", overwrite=overwrite)
    refused(run, "is a file", out=run / "mine" / "notes.txt", overwrite=overwrite)
    for needed in (run, run.parent, run / "merged", run / "global_step_4" / "x", base):
        refused(run, "holds files of the run", out=needed, overwrite=overwrite)


def test_a_base_model_that_is_no_name_is_refused(run):
    refused(run, "expected OWNER/NAME", base_model="small-base")


# The snippet


class VllmDouble(ModuleType):
    """Stands in for vLLM: remembers what it is asked."""

    def __init__(self):
        super().__init__("vllm")
        self.asked, self.sampling, self.engine = [], {}, {}

    def SamplingParams(self, **settings):
        self.sampling = settings

    def LLM(self, **settings):
        self.engine = settings
        return self

    def generate(self, prompts, sampling):
        self.asked += prompts
        return []

    def chat(self, conversations, sampling, **settings):
        self.asked += [(conversation, settings) for conversation in conversations]
        return []


@pytest.fixture
def vllm(monkeypatch):
    double = VllmDouble()
    monkeypatch.setitem(sys.modules, "vllm", double)
    return double


def form(template, text, **more):
    return PromptForm(template=template, text=text, max_tokens=96, **more)


@pytest.mark.parametrize("template", sorted(TEMPLATES))
def test_the_snippet_builds_the_prompt_of_training(vllm, template):
    snippet = render_snippet(form(template, TEMPLATES[template]), model="some/model", dtype=None)
    assert len(snippet.split("\n")) == 10 + 1
    exec(snippet, {})
    assert vllm.asked == [render_prompt("What is 7 times 8?", template)]
    assert vllm.sampling == {"temperature": 0.0, "max_tokens": 96}
    assert vllm.engine == {"model": "some/model"}


def test_the_snippet_ends_where_validation_does(vllm, run):
    exec(render_snippet(form("mine", "{question}", stop=("</answer>", 'a"b')), model="m", dtype=None), {})
    assert vllm.sampling["stop"] == ["</answer>", 'a"b']
    settings = yaml.safe_load((run / "resolved.yaml").read_text())
    settings["seele"]["prompt"] |= {"template": "r1_zero", "stop": None}
    write(run / "resolved.yaml", yaml.safe_dump(settings))
    assert 'stop=["User:", ' in make(run)[1]


def test_the_snippet_survives_a_template_of_ones_own(vllm):
    text = 'Quote " and \\boxed{} and \'\'\' and """\n\t```{question}``` ü 🙂 \u2028 end'
    exec(render_snippet(form("own.txt", text), model="m", dtype="float32"), {})
    assert vllm.asked == [text.replace("{question}", "What is 7 times 8?")]
    assert vllm.engine == {"model": "m", "dtype": "float32"}


def test_the_snippet_chats_where_training_did(vllm):
    chat = form("chat", None, chat=Chat("Be brief.", {"enable_thinking": False}))
    exec(render_snippet(chat, model="m", dtype=None), {})
    system, user = ("system", "Be brief."), ("user", f"What is 7 times 8?\n{BOX_REQUEST}")
    message = [{"role": role, "content": content} for role, content in (system, user)]
    assert vllm.asked == [(message, {"chat_template_kwargs": {"enable_thinking": False}})]
    # What asks for the box already is not asked to once more.
    exec(render_snippet(form("chat", None, chat=Chat("Use \\boxed{}.")), model="m", dtype=None), {})
    assert vllm.asked[-1][0][-1]["content"] == "What is 7 times 8?"


def test_the_card_tells_the_chat_templates_settings(run):
    settings = yaml.safe_load((run / "resolved.yaml").read_text())
    settings["seele"]["prompt"] |= {"template": "chat", "system": "Be brief.", "open_thinking": True}
    settings["data"]["apply_chat_template_kwargs"] = {"enable_thinking": False}
    write(run / "resolved.yaml", yaml.safe_dump(settings))
    prompt = section(make(run)[1], "Prompt")
    assert 'with `{"enable_thinking": false}`' in prompt and "```text\nBe brief.\n```" in prompt
    assert "In training the prompt ended with `<think>`" in prompt


def test_a_template_with_a_fence_in_it_does_not_end_the_cards(run):
    template = write(run / "own.txt", "```\n{question}\n```\n")
    settings = yaml.safe_load((run / "resolved.yaml").read_text())
    settings["seele"]["prompt"]["template"] = str(template)
    write(run / "resolved.yaml", yaml.safe_dump(settings))
    prompt = section(make(run)[1], "Prompt")
    assert "````text\n```\n{question}\n```\n````" in prompt and "`own.txt`" in prompt
