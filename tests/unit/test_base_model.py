"""Models on disk: base models, pretrained ones, adapters, and which checkpoints can be merged."""

import dataclasses
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("transformers")
pytest.importorskip("peft", reason="peft is not installed")
pytest.importorskip("omegaconf", reason="omegaconf is not installed")

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from seele import host
from seele.data.storage.files import file_sha256
from seele.errors import CheckpointError, ConfigError, DataError, DependencyError
from seele.host import computes_in_bfloat16
from seele.rollout.templates import render_prompt, template_text
from seele_models import command, pretrained, texts, training, warm_start
from seele_models.pretrained import PACKAGED, PackagedModel, fetch
from seele_models.recipes import RECIPES
from seele_models.texts import CALCULATIONS_PER_DRILL
from seele_models.texts import TEXTS as TEXTS_OF
from seele_models.tokenizer import _byte_characters, byte_tokenizer
from seele_models.training import NO_LOSS, fingerprint, make_base_model, recipe_hash
from seele_models.warm_start import WarmStart, make_warm_start
from seele_verl.checks.preflight import check_settings
from seele_verl.lora import ADAPTER, check_lora, check_saved_adapter, join_adapter
from seele_verl.merge import complete_steps, main
from seele_verl.train import compose

# --- Base models: the tokenizer is the bytes, the layout is the policy's, a folder is complete or absent


TINY = dataclasses.replace(
    RECIPES["chains"],
    student_levels=(1, 2),
    student_batches=4,
    batch_size=8,
    hidden_size=16,
    intermediate_size=16,
    num_layers=1,
    num_heads=2,
)
TEXTS = [("1 a+1\n", "1a+1=2\n\\boxed{2}")]


def folders(root):
    return sorted(path.name for path in root.iterdir())


def test_a_token_is_a_byte_and_its_id_the_bytes_value():
    tokenizer = byte_tokenizer()
    text = "".join(map(chr, range(1, 128))) + "é\N{SNOWMAN}\n"
    assert tokenizer(text)["input_ids"] == list(text.encode())
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert len(tokenizer) == 259


def test_padding_and_end_of_text_are_different_tokens_and_survive_saving(tmp_path):
    from transformers import AutoTokenizer

    byte_tokenizer().save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (256, 258)
    assert tokenizer("7 a+5\n")["input_ids"] == list(b"7 a+5\n")


def test_the_chat_template_writes_what_the_plain_template_writes():
    messages = [{"role": "user", "content": "7 a+5"}]
    text = byte_tokenizer().apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == render_prompt("7 a+5", "plain")


def test_the_loss_is_on_the_solution_and_the_end_of_text():
    row = training._row(("ab\n", "c"), byte_tokenizer())
    assert row == {"input_ids": [*b"ab\nc", 258], "labels": [NO_LOSS] * 3 + [*b"c", 258]}


def test_padding_is_on_the_right_and_without_loss():
    batch = training._pad([{"input_ids": [5, 6], "labels": [5, 6]}, {"input_ids": [7], "labels": [7]}])
    assert batch["input_ids"].tolist() == [[5, 6], [7, 0]]
    assert batch["labels"].tolist() == [[5, 6], [7, NO_LOSS]]


def test_levels_open_up_one_by_one_and_each_batch_has_one_level():
    recipe = dataclasses.replace(TINY, student_batches=100, student_levels=(1, 2, 3, 4))
    plan = texts._lesson_plan(recipe)
    batches = [plan[start : start + 8] for start in range(0, 800, 8)]
    assert all(len(set(batch)) == 1 for batch in batches)
    for number, batch in enumerate(batches, start=1):
        # All four levels are open after 30 of the 100 batches.
        assert 1 <= batch[0] <= min(4, math.ceil(number / 30 * 4))
    assert plan.count(4) > plan.count(2)


def test_the_hash_covers_settings_and_text_but_not_where_the_text_was_read():
    assert fingerprint(TINY, TEXTS) == fingerprint(dataclasses.replace(TINY, data_folder="/a"), TEXTS)
    others = {
        fingerprint(dataclasses.replace(TINY, seed=1), TEXTS),
        fingerprint(TINY, [*TEXTS, *TEXTS]),
        fingerprint(dataclasses.replace(TINY, chains=dataclasses.replace(TINY.chains, seed=1)), TEXTS),
    }
    assert len(others | {fingerprint(TINY, TEXTS)}) == 4


def test_a_model_is_made_once_and_loads_again(tmp_path):
    from transformers import AutoModelForCausalLM

    folder = make_base_model(tmp_path, TINY)
    assert folders(tmp_path) == [folder.name]
    written = (folder / "model.safetensors").stat().st_mtime_ns
    assert make_base_model(tmp_path, TINY) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == written
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert (model.config.model_type, model.config.vocab_size) == ("qwen2", 259)
    assert model.generation_config.eos_token_id == 258
    assert json.loads((folder / "recipe.json").read_text())["hidden_size"] == 16


def test_the_weights_of_chains_come_with_the_package(tmp_path, monkeypatch):
    chains = RECIPES["chains"]
    questions = [
        (render_prompt(question, "plain"), solution) for question, solution in TEXTS_OF["chains"](chains)
    ]
    weights = training.WEIGHTS / f"chains-{recipe_hash(chains, questions)}.safetensors"
    assert list(training.WEIGHTS.iterdir()) == [weights], (
        "the recipe or its text has changed: train the model (seele model base --task chains --out models "
        f"--train) and copy its model.safetensors to {weights}"
    )

    def fail(*args, **kwargs):
        raise RuntimeError("trained again")

    monkeypatch.setattr(training, "train", fail)
    folder = make_base_model(tmp_path, chains)
    assert (folder / "model.safetensors").read_bytes() == weights.read_bytes()
    assert {"config.json", "generation_config.json", "tokenizer.json", "recipe.json"} <= set(folders(folder))
    with pytest.raises(RuntimeError, match="trained again"):
        make_base_model(tmp_path, chains, always_train=True)


def test_a_training_that_fails_leaves_nothing_behind(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(training, "train", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        make_base_model(tmp_path, TINY)
    assert folders(tmp_path) == []


def test_the_slower_of_two_processes_takes_the_model_of_the_faster(tmp_path):
    for name in ("unfinished", "finished"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model").write_text(name)
    training._publish(tmp_path / "unfinished", tmp_path / "finished")
    assert (tmp_path / "finished" / "model").read_text() == "finished"
    with pytest.raises(OSError):
        training._publish(tmp_path / "absent", tmp_path / "nowhere")


def test_gsm8k_is_the_questions_and_their_solution_lines(tmp_path):
    row = {"question": "Two and two?", "answer": "2+2=<<2+2=4>>4\n#### 4"}
    (tmp_path / "train.jsonl").write_text(json.dumps(row) + "\n")
    recipe = dataclasses.replace(RECIPES["gsm8k"], data_folder=str(tmp_path), min_steps=2, drills=0)
    text = ("Two and two?", "2+2=4\nThe answer is \\boxed{4}.")
    assert list(texts.TEXTS["gsm8k"](recipe)) == [text]
    assert list(texts.TEXTS["gsm8k"](dataclasses.replace(recipe, min_steps=3))) == []


def test_gsm8k_drills_are_right_calculations_in_the_manner_of_the_solutions(tmp_path):
    answer = "She has 12 / 4 = <<12/4=3>>3.\nThen 30-7=<<30-7=23>>23.\n#### 23"
    (tmp_path / "train.jsonl").write_text(json.dumps({"question": "How many?", "answer": answer}) + "\n")
    recipe = dataclasses.replace(RECIPES["gsm8k"], data_folder=str(tmp_path), drills=40)
    drills = list(texts.TEXTS["gsm8k"](recipe))
    assert len(drills) == 40 and not any(question for question, _ in drills)
    lines = "".join(text for _, text in drills).splitlines()
    assert len(lines) == 40 * CALCULATIONS_PER_DRILL
    assert {re.sub("[0-9]+", "0", line) for line in lines} == {"0 / 0 = 0", "0-0=0"}
    for line in lines:
        left, right = line.split("=")
        assert eval(left) == int(right) >= 0


def test_the_last_line_of_stdout_is_the_folder_and_the_tasks_name_leads_to_the_latest(
    tmp_path, monkeypatch, capsys
):
    for seed in (0, 1, 0):
        monkeypatch.setitem(RECIPES, "chains", dataclasses.replace(TINY, seed=seed))
        assert command.main(["base", "--out", str(tmp_path)]) == 0
        (folder,) = map(Path, capsys.readouterr().out.splitlines())
        assert (tmp_path / "chains").resolve() == folder.resolve()
        assert json.loads((tmp_path / "chains" / "recipe.json").read_text())["seed"] == seed
    assert len(folders(tmp_path)) == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--task", "problems", "--data-folder", "absent"], "absent/train.parquet: no such file"),
        (["--task", "problems"], "--data-folder: --task problems needs the folder of train.parquet"),
        (["--task", "two_styles", "--data-folder", "x"], "--data-folder: --task two_styles writes its own"),
        (["--out", "file"], "File exists: 'file'"),
        (["--out", "taken"], "taken/chains is there, and is not a link"),
    ],
    ids=["absent", "missing", "without effect", "file", "taken"],
)
def test_what_a_base_model_cannot_be_made_of_or_into_is_one_line_and_exit_status_2(
    tmp_path, monkeypatch, capsys, arguments, said
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "taken" / "chains").mkdir(parents=True)
    monkeypatch.setattr(training, "train", lambda *_: pytest.fail("it must not begin"))
    assert command.main(["base", "--out", "models", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and said in line


def test_texts_that_are_too_long_are_counted_and_none_left_is_an_error(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(training, "Trainer", lambda **_: SimpleNamespace(train=lambda: None))
    recipe = dataclasses.replace(TINY, max_positions=30)
    long = ("1 a+1\n", "1a+1=2\n" * 10)
    training.train(recipe, [*TEXTS, long], byte_tokenizer(), scratch=tmp_path)
    assert capsys.readouterr().err.startswith("left out: 1 of 2 texts, longer than 30 tokens\n")
    with pytest.raises(
        DataError, match="chains: none of the 1 texts has at most 30 tokens, so there is nothing"
    ):
        training.train(recipe, [long], byte_tokenizer(), scratch=tmp_path)
    with pytest.raises(DataError, match="no solution has a calculation"):
        list(texts.drills(["None here."], 1, random.Random(0)))


# --- Pretrained models: a GGUF file in a package becomes a folder with the same logits, complete or absent.
# Those of the hub are in test_hub.py


CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>")
MERGES = ("Ġ t", "h e", "Ġt he", "Ċ Ċ", "1 2", ". Ċ")
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
VOCABULARY = (*CONTROL, *_byte_characters(), *(merge.replace(" ", "") for merge in MERGES))
LLAMA = LlamaConfig(
    vocab_size=len(VOCABULARY),
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=512,
    rope_theta=100_000.0,
    rms_norm_eps=1e-5,
    tie_word_embeddings=True,
)
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""Names of llama.cpp, by those of Hugging Face."""


def name_in_file(name):
    name = name.removesuffix(".weight")
    if layer := re.fullmatch(r"model\.layers\.(\d+)\.(.+)", name):
        return f"blk.{layer[1]}.{NAMES[layer[2]]}.weight"
    return f"{NAMES[name]}.weight"


def interleaved(weight, heads):
    """Rows of queries or keys as llama.cpp's convert_hf_to_gguf.py orders them (LlamaModel.permute)."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write_gguf(path, kind):
    """A Llama with random weights as llama.cpp's converter writes SmolLM2, matrices in the quantisation
    ``kind`` and the embedding in 8 bits then; returns the model that it is, built without the file.
    """
    import gguf
    from gguf.quants import dequantize, quantize

    torch.manual_seed(0)
    model = LlamaForCausalLM(LLAMA).eval()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("Tiny")
    writer.add_block_count(LLAMA.num_hidden_layers)
    writer.add_context_length(LLAMA.max_position_embeddings)
    writer.add_embedding_length(LLAMA.hidden_size)
    writer.add_feed_forward_length(LLAMA.intermediate_size)
    writer.add_head_count(LLAMA.num_attention_heads)
    writer.add_head_count_kv(LLAMA.num_key_value_heads)
    writer.add_rope_freq_base(100_000.0)
    writer.add_rope_dimension_count(LLAMA.hidden_size // LLAMA.num_attention_heads)
    writer.add_layer_norm_rms_eps(LLAMA.rms_norm_eps)
    writer.add_vocab_size(len(VOCABULARY))
    writer.add_add_space_prefix(False)
    writer.add_add_bos_token(False)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(VOCABULARY)
    kinds = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_token_types([kinds[token not in CONTROL] for token in VOCABULARY])
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    # As in many files, that of a text of pre-training and not of a turn; and no filler.
    writer.add_eos_token_id(0)
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)
    for name, parameter in model.named_parameters():
        with torch.no_grad():
            parameter.copy_(torch.randn(parameter.shape) * 0.3 + (parameter.ndim == 1))
        weight = parameter.detach().numpy()
        quantisation = gguf.GGMLQuantizationType["Q8_0" if "embed" in name and kind != "F32" else kind]
        if weight.ndim == 1 or kind == "F32":
            quantisation = gguf.GGMLQuantizationType.F32
        stored = quantize(weight, quantisation)
        if quantisation != gguf.GGMLQuantizationType.F32:
            parameter.data = torch.from_numpy(dequantize(stored, quantisation))
        heads = {"q_proj": LLAMA.num_attention_heads, "k_proj": LLAMA.num_key_value_heads}
        if rows := next((heads[part] for part in heads if part in name), None):
            stored = interleaved(stored, rows)
        writer.add_tensor(name_in_file(name), stored, raw_dtype=quantisation)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def write_wheel(folder, gguf):
    about = "tiny_gguf-1.0.dist-info"
    with zipfile.ZipFile(folder / "tiny_gguf-1.0-py3-none-any.whl", "w") as wheel:
        wheel.write(gguf, "tiny_gguf/tiny.gguf")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny-gguf\nVersion: 1.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")


@pytest.fixture(scope="module", params=["F32", "Q4_1"])
def package(request, tmp_path_factory):
    """Folder with a wheel, what is pinned of it, and the model in it."""
    pytest.importorskip("gguf")
    folder = tmp_path_factory.mktemp("packages")
    gguf = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    model = write_gguf(gguf, request.param)
    write_wheel(folder, gguf)
    pinned = PackagedModel(
        package="tiny-gguf",
        version="1.0",
        member="tiny_gguf/tiny.gguf",
        sha256=file_sha256(gguf),
        model="Owner/Tiny",
        license="apache-2.0",
        single_digits=True,
        eos="<|im_end|>",
        pad="<|im_end|>",
    )
    return folder, pinned, model


def know(monkeypatch, folder, **pinned):
    """Let pip find the packages of ``folder`` and no others."""
    for name, value in {"CONFIG_FILE": os.devnull, "NO_INDEX": "1", "FIND_LINKS": str(folder)}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    for name, model in pinned.items():
        monkeypatch.setitem(PACKAGED, name, model)


@pytest.fixture(scope="module")
def fetched(package, tmp_path_factory):
    """The package's model, fetched."""
    folder, pinned, _ = package
    with pytest.MonkeyPatch.context() as patch:
        know(patch, folder, tiny=pinned)
        return fetch("tiny", tmp_path_factory.mktemp("models"))


@torch.no_grad()
def test_a_fetched_model_has_the_logits_of_its_file(package, fetched):
    _, _, wanted = package
    tokens = torch.randint(len(VOCABULARY), (2, 24), generator=torch.Generator().manual_seed(1))
    found = AutoModelForCausalLM.from_pretrained(fetched)
    assert {weight.dtype for weight in found.parameters()} == {torch.float32}
    torch.testing.assert_close(found(tokens).logits, wanted(tokens).logits, rtol=1e-5, atol=1e-5)
    # They would show the order of llama.cpp's rows, and another base of the rotations.
    for layer in found.model.layers:
        weight = layer.self_attn.q_proj.weight
        weight.data = torch.from_numpy(interleaved(weight.numpy(), LLAMA.num_attention_heads).copy())
    assert (found(tokens).logits - wanted(tokens).logits).abs().max() > 0.1
    other = LlamaForCausalLM(LlamaConfig(**LLAMA.to_diff_dict() | {"rope_parameters": None}))
    other.load_state_dict(wanted.state_dict())
    assert (other(tokens).logits - wanted(tokens).logits).abs().max() > 0.1


def test_what_the_conversion_loses_is_put_back(fetched):
    config, model = AutoConfig.from_pretrained(fetched), AutoModelForCausalLM.from_pretrained(fetched)
    tokenizer = AutoTokenizer.from_pretrained(fetched)
    for settings in (config, model.generation_config, tokenizer):
        assert (settings.eos_token_id, settings.pad_token_id) == (2, 2)
    assert (config.rms_norm_eps, config.max_position_embeddings, config.tie_word_embeddings) == (
        1e-5,
        512,
        True,
    )
    assert config.rope_parameters["rope_theta"] == 100_000
    assert (tokenizer.model_max_length, tokenizer.clean_up_tokenization_spaces) == (512, False)
    assert sorted(tokenizer.all_special_tokens) == sorted(CONTROL)
    assert json.loads((fetched / "tokenizer.json").read_text())["decoder"]["type"] == "ByteLevel"
    assert tokenizer("the<repo_name>the")["input_ids"].count(3) == 1
    assert tokenizer.tokenize("12 + 120 the\n\n") == ["1", "2", "Ġ", "+", "Ġ", "1", "2", "0", "Ġthe", "ĊĊ"]


def test_a_conversation_is_its_tokens_and_back(fetched):
    tokenizer = AutoTokenizer.from_pretrained(fetched)
    messages = [
        {"role": "system", "content": "Be brief ."},
        {"role": "user", "content": "What 's 12 + 120 ?\n\n naïve Σ → 3.5 😀"},
    ]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text.startswith("<|im_start|>system\nBe brief .<|im_end|>\n<|im_start|>user\nWhat 's")
    assert text.endswith("😀<|im_end|>\n<|im_start|>assistant\n")
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == text
    assert [token for token in ids if token < len(CONTROL)] == [1, 2, 1, 2, 1]
    given = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert given == ids
    behind = tokenizer.decode(ids, skip_special_tokens=True)
    assert behind == re.sub(r"<\|im_\w+\|>", "", text)


def test_card_and_source_say_where_a_fetched_model_is_from(package, fetched):
    _, pinned, _ = package
    assert json.loads((fetched / "source.json").read_text()) == {
        "name": "tiny",
        "revision": None,
        "package": "tiny-gguf==1.0",
        "sha256": pinned.sha256,
    }
    card = (fetched / "README.md").read_text()
    assert card.startswith("---\nlicense: apache-2.0\nbase_model: Owner/Tiny\n---\n")
    assert "[tiny-gguf](https://pypi.org/project/tiny-gguf/)" in card and pinned.sha256 in card
    assert folders(fetched.parent) == [fetched.name]


def test_a_model_that_was_fetched_is_found(package, fetched, monkeypatch, capsys):
    folder, pinned, _ = package
    know(monkeypatch, folder, tiny=pinned)
    monkeypatch.setattr(pretrained, "_unpack", lambda *_: pytest.fail("it is there"))
    assert command.main(["fetch", "tiny", "--out", str(fetched.parent)]) == 0
    assert capsys.readouterr().out == f"{fetched}\n"
    # Another version of the package is not what is there.
    monkeypatch.setitem(PACKAGED, "tiny", dataclasses.replace(pinned, version="1.1"))
    with pytest.raises(
        DataError, match=r"tiny is there, .*tiny-gguf==1\.1.*but from .*tiny-gguf==1\.0.*--out"
    ):
        fetch("tiny", fetched.parent)


@pytest.mark.parametrize("package", ["F32"], indirect=True)
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"sha256": "0" * 64},
            r"tiny\.gguf has the SHA-256 [1-9a-f].*, but 0{64} was expected; the file is dam",
        ),
        ({"member": "else.gguf"}, "tiny_gguf-1.0-py3-none-any.whl has no else.gguf; it is another wheel"),
        ({"version": "2.0"}, r"tiny-gguf==2\.0 cannot be downloaded by pip: ERROR: .*tiny-gguf==2\.0 .*1\.0"),
        (
            {"package": "no-gguf"},
            r"no-gguf==1\.0 cannot be downloaded by pip: ERROR: .*none\); check the netw",
        ),
    ],
    ids=["hash", "member", "version", "package"],
)
def test_a_package_that_is_not_what_was_pinned_leaves_nothing(
    package, monkeypatch, tmp_path, capsys, changed, said
):
    folder, pinned, _ = package
    know(monkeypatch, folder, tiny=dataclasses.replace(pinned, **changed))
    assert command.main(["fetch", "tiny", "--out", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(said, line), line
    assert folders(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["smollm3"], r"unknown model 'smollm3'; allowed are \['smollm2-135m'\] and OWNER/NAME"),
        (["Owner/.."], "unknown model 'Owner/..'"),
        (["/etc"], "unknown model '/etc'"),
        (["smollm2-135m", "--revision", "main"], "--revision: smollm2-135m has the version 0.1.2"),
    ],
    ids=["name", "parent", "path", "revision"],
)
def test_a_model_that_cannot_be_is_refused_before_any_work(tmp_path, capsys, arguments, said):
    assert command.main(["fetch", *arguments, "--out", str(tmp_path / "models")]) == 2
    assert re.match(f"error: (seele model fetch: )?{said}", capsys.readouterr().err)
    assert folders(tmp_path) == []


@pytest.mark.parametrize("library", ["gguf", "torch", "transformers"])
def test_a_library_that_is_missing_is_named_before_the_download(tmp_path, monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(
        DependencyError, match=rf"^seele model fetch: .*{library}.*; run: pip install {library}$"
    ):
        fetch("smollm2-135m", tmp_path / "models")
    assert folders(tmp_path) == []


@pytest.mark.parametrize("content", [None, "", "[1]"], ids=["none", "empty", "other"])
def test_a_folder_with_something_else_is_left_alone(tmp_path, content):
    mine = tmp_path / "smollm2-135m"
    mine.mkdir()
    if content is not None:
        (mine / "source.json").write_text(content)
    with pytest.raises(
        DataError, match=r"smollm2-135m is there, and was not made from .*remove or rename it"
    ):
        fetch("smollm2-135m", tmp_path)
    assert folders(mine) == ["source.json"] * (content is not None)


@pytest.mark.parametrize("package", ["F32"], indirect=True)
def test_a_conversion_that_is_interrupted_leaves_nothing(package, monkeypatch, tmp_path):
    folder, pinned, _ = package
    know(monkeypatch, folder, tiny=pinned)

    def interrupt(gguf, packaged, out):
        out.mkdir()
        (out / "config.json").write_text("{}")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pretrained, "convert", interrupt)
        with pytest.raises(KeyboardInterrupt):
            fetch("tiny", tmp_path)
    assert folders(tmp_path) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from seele_models import pretrained

def kill(gguf, packaged, out):
    out.mkdir()
    (out / "config.json").write_text("{}")
    os.kill(os.getpid(), signal.SIGKILL)

pretrained._need = pretrained._unpack = lambda *_: None
pretrained.convert = kill
pretrained.fetch("smollm2-135m", Path(sys.argv[1]))
"""


def test_a_process_that_is_killed_leaves_no_model(tmp_path, monkeypatch):
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr
    (left,) = folders(tmp_path)
    assert left.startswith(".smollm2-135m-")
    monkeypatch.setattr(pretrained, "_need", lambda _: None)
    monkeypatch.setattr(pretrained, "_unpack", lambda *_: None)
    monkeypatch.setattr(pretrained, "convert", lambda gguf, packaged, out: out.mkdir())
    fetch("smollm2-135m", tmp_path)
    assert folders(tmp_path) == ["smollm2-135m"]


@pytest.mark.parametrize("package", ["F32"], indirect=True)
def test_the_slower_of_two_processes_takes_what_the_faster_fetched(package, fetched, monkeypatch, tmp_path):
    folder, pinned, _ = package
    know(monkeypatch, folder, tiny=pinned)

    def convert_slowly(gguf, packaged, out):
        for place in (out, tmp_path / "tiny"):
            place.mkdir()
        (tmp_path / "tiny" / "source.json").write_text((fetched / "source.json").read_text())

    monkeypatch.setattr(pretrained, "convert", convert_slowly)
    assert fetch("tiny", tmp_path) == tmp_path / "tiny"
    assert folders(tmp_path) == ["tiny"]


@torch.no_grad()
def test_smollm2_says_what_it_said_when_it_was_pinned(smollm2):
    model, tokenizer = (kind.from_pretrained(smollm2) for kind in (AutoModelForCausalLM, AutoTokenizer))
    prompt = tokenizer("The capital of France is", return_tensors="pt")
    logits, tokens = model(**prompt).logits[0, -1].topk(3)
    assert [tokenizer.decode([token]) for token in tokens.tolist()] == [" Paris", " the", " London"]
    assert logits.tolist() == pytest.approx([17.37, 14.89, 13.24], abs=1e-2)
    question = [{"role": "user", "content": "What is 12 + 30?"}]
    text = tokenizer.apply_chat_template(question, tokenize=False, add_generation_prompt=True)
    prompt = tokenizer(text, return_tensors="pt")
    said = model.generate(**prompt, max_new_tokens=40, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    assert said[-1] == tokenizer.eos_token_id
    assert tokenizer.decode(said, skip_special_tokens=True) == (
        "12 + 30 = 32\n\nThis is a classic example of arithmetic operations being added together."
    )


# --- Warm starts: named after everything that makes them, refused before anything starts


def warm_start_of(folder, **changes):
    """A warm start of a model and problems that are there, whatever they hold."""
    model, problems = folder / "model", folder / "problems.parquet"
    model.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (model / name).write_text(name)
    problems.write_text("problems")
    return dataclasses.replace(WarmStart(model=model, problems=problems), **changes)


@pytest.fixture
def composed(monkeypatch):
    """Stands in for the composition of a run's configuration, which takes seconds; may be changed."""
    begin = ["defaults"]
    monkeypatch.setattr(warm_start, "_composed", lambda overrides: json.dumps(begin + overrides))
    return begin


def test_a_warm_start_is_named_after_contents_and_settings_and_not_after_places(tmp_path, composed):
    here = warm_start_of(tmp_path / "here")
    assert warm_start.fingerprint(here) == warm_start.fingerprint(warm_start_of(tmp_path / "there"))
    names = {warm_start.fingerprint(here), warm_start.fingerprint(dataclasses.replace(here, seed=1))}
    names.add(warm_start.fingerprint(dataclasses.replace(here, settings=("data.seed=1",))))
    for file in (here.problems, here.model / "model.safetensors", here.model / "tokenizer.json"):
        file.write_text("others")
        names.add(warm_start.fingerprint(here))
    composed.append("another default")
    names.add(warm_start.fingerprint(here))
    assert len(names) == 7
    template_text.cache_clear()
    for folder, text in (("here", "Q: {question}"), ("there", "Q: {question}"), ("here", "Ask: {question}")):
        (template := tmp_path / folder / "template.txt").write_text(text)
        template_text.cache_clear()  # a command is a process of its own
        names.add(warm_start.fingerprint(dataclasses.replace(here, template=str(template))))
    assert len(names) == 9


def test_a_warm_start_is_named_after_what_its_settings_compose(tmp_path, capfd):
    here = warm_start_of(tmp_path / "here")
    same = dataclasses.replace(here, settings=("seele.sft.warmup_ratio=0.1",))
    assert warm_start.fingerprint(here) == warm_start.fingerprint(same)
    with pytest.raises(CheckpointError, match="the settings give no configuration"):
        warm_start.fingerprint(dataclasses.replace(here, settings=("seele.sft.epoch=1",)))
    assert "seele.sft.epoch" in capfd.readouterr().err


@pytest.mark.usefixtures("composed")
def test_a_warm_start_of_a_made_model_is_found_again(tmp_path):
    wish = warm_start_of(tmp_path)
    made = tmp_path / f"model-warm-{warm_start.fingerprint(wish)}"
    made.mkdir()
    assert make_warm_start(tmp_path, wish) == made


@pytest.mark.usefixtures("composed")
def test_a_warm_start_that_fails_leaves_no_model_and_goes_on_with_its_run(tmp_path, monkeypatch):
    wish, called = warm_start_of(tmp_path), []
    outcomes = iter([1, 0, 1, 0, 0])  # training, training and export, both again

    def run_module(module, arguments, *, stdout):
        called.append(module)
        if module == "seele_verl.train":
            [run] = [each.split("=")[1].strip("'") for each in arguments if "default_local_dir=" in each]
            (Path(run) / f"trained_{len(called)}").touch()
        else:
            assert (Path(arguments[1]) / "trained_1").exists(), "the run of the first call"
            Path(arguments[-1]).mkdir()
        return next(outcomes)

    monkeypatch.setattr(warm_start, "run_module", run_module)
    made = tmp_path / "out" / f"model-warm-{warm_start.fingerprint(wish)}"
    for module in ("seele_verl.train", "seele.cli.main"):
        with pytest.raises(CheckpointError, match=rf"python -m {module} failed \(status 1\)"):
            make_warm_start(tmp_path / "out", wish)
        assert called[-1] == module and not made.exists()
    assert make_warm_start(tmp_path / "out", wish) == made
    assert [*(tmp_path / "out").iterdir()] == [made], "nothing is left behind"


@pytest.mark.parametrize("lacks", ["model", "problems"])
def test_a_warm_start_without_its_model_or_problems_is_refused(tmp_path, lacks, capsys):
    wish = warm_start_of(tmp_path)
    given = {"model": wish.model, "problems": wish.problems, lacks: tmp_path / "none"}
    arguments = ["warm-start", str(given["model"]), "--problems", str(given["problems"])]
    assert command.main([*arguments, "--out", str(tmp_path / "out")]) == 2
    assert f"error: {tmp_path / 'none'}: no such" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_warm_start_takes_settings_behind_its_options(tmp_path, monkeypatch, capsys):
    wishes = []
    monkeypatch.setattr(command, "make_warm_start", lambda _, wish: wishes.append(wish) or tmp_path / "made")
    arguments = ["warm-start", "m", "a=1", "--problems", "p", "--out", str(tmp_path)]
    assert command.main([*arguments, "b=2", "+c=3"]) == 0
    assert wishes[0].settings == ("a=1", "b=2", "+c=3")
    for wrong in ("more", "--limt=3"):
        with pytest.raises(SystemExit):
            command.main([*arguments, wrong])
        assert f"unrecognized arguments: {wrong}" in capsys.readouterr().err


def test_a_warm_starts_settings_are_those_of_a_run(tmp_path):
    here = tmp_path / "it's, here"
    own = {"template": str(here / "mine.txt"), "settings": ("trainer.experiment_name=mine",)}
    wish = warm_start_of(here, **own)
    config = compose(wish.overrides(tmp_path / "run"))
    assert config.actor_rollout_ref.model.path == str(wish.model)
    assert list(config.data.train_files) == [str(wish.problems)]
    assert config.seele.prompt.template == wish.template
    assert config.seele.sft.learning_rate == wish.learning_rate
    assert config.trainer.experiment_name == "mine"
    in_bfloat16 = config.actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype == "bf16"
    assert in_bfloat16 is computes_in_bfloat16()


def test_processors_that_multiply_in_bfloat16_are_known_by_their_flags(tmp_path, monkeypatch):
    found = []
    for flags in ("avx2 avx512f avx512_bf16", "avx2 amx_bf16 amx_tile", "avx2 avx512f", "avx512_bf16x"):
        (tmp_path / "cpuinfo").write_text(f"processor : 0\nflags\t\t: fpu {flags}\n")
        monkeypatch.setattr(host, "CPU_INFO", tmp_path / "cpuinfo")
        found.append(computes_in_bfloat16())
    assert found == [True, True, False, False]
    monkeypatch.setattr(host, "CPU_INFO", tmp_path / "none")
    assert not computes_in_bfloat16()


# --- What LoRA is refused with, and how an adapter is merged. Training with one is in tests/integration


REFUSED = [
    ("actor_rollout_ref.model.lora.rank=8", "that is Megatron's; set actor_rollout_ref.model.lora_rank"),
    ("actor_rollout_ref.model.lora_adapter_path=a", "KL would go to the model without that adapter"),
    ("method=ppo critic.model.lora_rank=8", "critic.model.lora_rank: got 8, .*value head as it was drawn"),
    ("method=sft adapter=lora", "a supervised stage trains the whole model"),
    ("method=sft_rl adapter=lora", "a supervised stage trains the whole model"),
    ("adapter=lora actor_rollout_ref.model.lora.merge=true", "would send the merged weights in bfloat16"),
    (
        "actor_rollout_ref.model.lora_rank=8 actor_rollout_ref.rollout.layered_summon=true",
        "set actor_rollout_ref.rollout.load_format=safetensors, as adapter=lora does",
    ),
]


@pytest.mark.parametrize(("overrides", "message"), REFUSED, ids=[overrides for overrides, _ in REFUSED])
def test_what_cannot_work_is_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        check_lora(compose(["hardware=cpu", "job=tiny", *overrides.split()]))


@pytest.mark.parametrize("rank", ["-1", "513", "8.5"])
def test_ranks_that_the_engine_does_not_know_are_refused(rank):
    overrides = ["hardware=cpu", "job=tiny", f"actor_rollout_ref.model.lora_rank={rank}"]
    with pytest.raises(ConfigError, match=r"lora_rank: expected a whole number from 0 \(no LoRA\) to 512"):
        check_settings(compose(overrides), overrides)


@pytest.mark.parametrize("method", ["seele", "grpo", "luffy", "ppo"])
def test_methods_that_roll_out_take_an_adapter(method):
    overrides = [f"method={method}", "hardware=gpu8", "model=qwen3_4b_base", "adapter=lora"]
    config = compose(overrides)
    check_settings(config, overrides)
    check_lora(config)
    assert config.actor_rollout_ref.model.lora_rank == 32
    assert config.actor_rollout_ref.rollout.load_format == "safetensors"


def test_a_checkpoint_of_another_rank_or_alpha_is_not_gone_on_with(tmp_path):
    whole, adapted = (compose(["hardware=cpu", "job=tiny", f"adapter={name}"]) for name in ("none", "lora"))
    (tmp_path / "actor").mkdir()
    check_saved_adapter(whole, tmp_path)
    with pytest.raises(ConfigError, match=r"lora_rank: got 32, but .* was saved with 0"):
        check_saved_adapter(adapted, tmp_path)
    (tmp_path / "actor" / "lora_train_meta.json").write_text('{"r": 32, "lora_alpha": 32}')
    check_saved_adapter(adapted, tmp_path)
    adapted.actor_rollout_ref.model.lora_alpha = 64
    with pytest.raises(ConfigError, match=r"lora_alpha: got 64, but .* was saved with 32"):
        check_saved_adapter(adapted, tmp_path)
    with pytest.raises(ConfigError, match=r"lora_rank: got 0, but .* was saved with 32"):
        check_saved_adapter(whole, tmp_path)


def test_an_adapter_joins_a_qwen3_model(tmp_path):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "head_dim": 8}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 64}
    training = Qwen3ForCausalLM(Qwen3Config(**sizes, **heads, tie_word_embeddings=True))
    training.save_pretrained(tmp_path)
    adapted = get_peft_model(training, LoraConfig(r=4, lora_alpha=8, target_modules="all-linear"))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:  # drawn as zeros, which change nothing
                parameter.normal_()
    adapted.save_pretrained(tmp_path / ADAPTER)
    join_adapter(tmp_path, "Qwen/Qwen3-0.6B-Base")
    tokens = torch.arange(32)[None]
    with torch.no_grad():
        wanted = adapted(tokens).logits
        found = AutoModelForCausalLM.from_pretrained(tmp_path)(tokens).logits
        with adapted.disable_adapter():
            assert (wanted - adapted(tokens).logits).abs().max() > 0.1
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    config = json.loads((tmp_path / ADAPTER / "adapter_config.json").read_text())
    assert (config["r"], config["base_model_name_or_path"]) == (4, "Qwen/Qwen3-0.6B-Base")
    # The adapter is as it was.
    fresh = PeftModel.from_pretrained(adapted.unload(), str(tmp_path / ADAPTER))
    with torch.no_grad():
        torch.testing.assert_close(fresh(tokens).logits, wanted)


# --- Which checkpoints of a run can be merged. Merging itself is in tests/integration


def checkpoints(run, *steps, tracked):
    for step in steps:
        (run / f"global_step_{step}" / "actor").mkdir(parents=True)
        zipfile.ZipFile(run / f"global_step_{step}" / "data.pt", "w").close()  # in torch.save's format
    (run / "latest_checkpointed_iteration.txt").write_text(str(tracked))
    return run


def test_steps_up_to_the_last_complete_one_can_be_merged(tmp_path, capsys):
    # A run that was killed while it saved step 30.
    run = checkpoints(tmp_path, 20, 10, 30, tracked=20)
    # An earlier one whose weights were removed.
    shutil.rmtree(checkpoints(run, 15, tracked=20) / "global_step_15" / "actor")
    # One that an earlier attempt did not finish.
    (run / "global_step_17" / "actor").mkdir(parents=True)
    assert complete_steps(run) == [10, 20]
    main([str(run), "--list"])
    assert capsys.readouterr().out == "10 20\n"


def test_a_run_without_checkpoints_is_refused(tmp_path, capsys):
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        complete_steps(tmp_path)
    with pytest.raises(SystemExit, match=r"^2$"):
        main([str(tmp_path), "--list"])
    error = capsys.readouterr().err
    assert error.startswith("error: ") and "no complete checkpoint" in error
