"""Every script and recipe fits its hardware by arithmetic, its engine's arguments are vLLM's, and the counts
match what verl's functions allocate.
"""

import asyncio
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

import torch
from omegaconf import DictConfig, OmegaConf
from torch.utils._python_dispatch import TorchDispatchMode
from verl.utils.config import omega_conf_to_dataclass

from helpers.scripts import script_arguments
from seele.errors import ConfigError
from seele.maths.memory import GIB, Passes, layer_token, memory_table
from seele.maths.model_shapes import HUB_NAMES, SHAPES
from seele_verl import memory
from seele_verl.changes import with_changes
from seele_verl.checks.memory_changes import TOKEN_LIMITS
from seele_verl.memory import check_memory, describe_recipes, needs_of, shape_from
from seele_verl.options import published_recipes
from seele_verl.settings import read_settings

Compose = Callable[..., DictConfig]
ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "scripts").glob("train_*.sh"))
ARGUMENTS = {"train_baseline.sh": ("luffy",), "train_recipe.sh": ("seele_qwen2.5-7b",)}
GPU_FILES = ("gpu1", "gpu1_24", "gpu1_48", "gpu8", "gpu16")
# Hardware -> the largest of our models that its file is for.
LARGEST = {
    "gpu1": "qwen2_5_3b",
    "gpu1_48": "qwen2_5_1_5b",
    "gpu1_24": "qwen2_5_1_5b",
    "gpu8": "qwen3_8b",
    "gpu16": "qwen3_8b",
}


def arguments_of(script: Path) -> list[str]:
    return script_arguments(script.name, *ARGUMENTS.get(script.name, ()))


# Everything that is published fits


def composed_runs() -> list[tuple[str, ...]]:
    return [
        *((f"recipe={recipe}",) for recipe in published_recipes()),
        *((f"hardware={hardware}", f"model={model}") for hardware, model in LARGEST.items()),
    ]


@pytest.mark.parametrize("overrides", composed_runs(), ids=lambda run: " ".join(run))
def test_a_run_fits_its_hardware(overrides: tuple[str, ...], composed: Compose) -> None:
    needs = needs_of(composed(*overrides))
    assert {need.place for need in needs} >= {"GPU", "host", "disk"}
    short = [need for need in needs if not need.fits]
    assert not short, memory_table(short)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_fits_its_hardware(script: Path, composed: Compose) -> None:
    needs = needs_of(composed(*arguments_of(script)))
    assert all(need.fits for need in needs), memory_table(needs)


@pytest.mark.parametrize("hardware", LARGEST)
def test_nothing_is_split_or_offloaded_without_need(hardware: str, composed: Compose) -> None:
    config = composed(f"hardware={hardware}", f"model={LARGEST[hardware]}")
    fsdp = config.actor_rollout_ref.actor.fsdp_config
    assert config.actor_rollout_ref.rollout.tensor_model_parallel_size == 1
    assert not fsdp.param_offload and not fsdp.optimizer_offload
    assert fsdp.offload_policy == (hardware == "gpu1_24")
    if fsdp.offload_policy:
        without = with_changes(config, {"actor_rollout_ref.actor.fsdp_config.offload_policy": False})
        assert not all(need.fits for need in needs_of(without))


def test_the_documented_table_of_recipes_is_up_to_date(composed: Compose) -> None:
    page = (ROOT / "docs" / "memory.md").read_text()
    table = describe_recipes(lambda overrides: composed(*overrides))
    assert table in page, "docs/memory.md: insert the output of `python -m seele_verl.memory --recipes`"


# What does not fit


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Callable[[float | None], None]:
    """Make this a node with 1,024 GiB of memory and cards of this size in GiB, or without cards."""

    def becomes(card_gib: float | None) -> None:
        monkeypatch.setattr(memory, "card_memory", lambda: None if card_gib is None else card_gib * GIB)
        monkeypatch.setattr(memory, "host_memory", lambda: 1024.0 * GIB)
        monkeypatch.setattr(memory, "shape_of", lambda model, **_: SHAPES[HUB_NAMES[model]])
        disk = SimpleNamespace(free=4096 * GIB)
        monkeypatch.setattr(memory.shutil, "disk_usage", lambda path: disk)

    return becomes


def check(config: DictConfig, **changes: Any) -> None:
    config = with_changes(config, {key.replace("__", "."): value for key, value in changes.items()})
    check_memory(config, read_settings(config), supervised=False, num_problems=1000)


def settings_of(said: str) -> dict[str, Any]:
    """Return the settings that a refusal names."""
    advice = said.split("This would fit: ")[1].split(";")[0]
    pairs = (item.split("=") for item in advice.split())
    return {key: OmegaConf.create(f"value: {value}").value for key, value in pairs}


def test_a_run_that_fits_passes(node: Callable[[float | None], None], composed: Compose) -> None:
    node(79.0)
    check(composed("recipe=seele_qwen2.5-7b"))


def test_a_card_that_is_too_small_is_named_with_settings_that_fit(
    node: Callable[[float | None], None], composed: Compose
) -> None:
    node(38.0)
    with pytest.raises(ConfigError) as error:
        check(composed("recipe=seele_qwen2.5-7b"))
    said = str(error.value)
    assert "update needs 38.9 GiB of a GPU, which has 38.0: activations 13.0" in said
    assert "rolling out needs 39.7 GiB of a GPU" in said
    assert settings_of(said) == {
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": 16_384,
        "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu": 16_384,
        "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu": 16_384,
        "actor_rollout_ref.rollout.gpu_memory_utilization": 0.6,
    }
    assert said.endswith("; seele.memory.check=warn starts anyway")


def test_whole_logits_are_what_the_limits_on_tokens_are_lowered_for(
    node: Callable[[float | None], None], composed: Compose
) -> None:
    node(79.0)
    whole = {
        "actor_rollout_ref__model__use_fused_kernels": False,
        "actor_rollout_ref__rollout__log_prob_max_token_len_per_gpu": 49_152,
        "actor_rollout_ref__actor__entropy_from_logits_with_chunking": False,
    }
    with pytest.raises(ConfigError, match=r"old log-probabilities needs 94\.4 GiB of a GPU.*: logits 69\.9"):
        check(composed("recipe=seele_qwen2.5-7b"), **whole)


def test_settings_that_are_said_to_fit_do_and_none_of_them_can_be_left_out(
    node: Callable[[float | None], None], composed: Compose
) -> None:
    node(23.5)
    config = composed("recipe=seele_qwen2.5-7b")
    with pytest.raises(ConfigError) as error:
        check(config)
    changes = settings_of(str(error.value))
    check(with_changes(config, changes))
    limits = dict.fromkeys(TOKEN_LIMITS)
    for key in changes.keys() - limits.keys():
        with pytest.raises(ConfigError):
            check(with_changes(config, {name: value for name, value in changes.items() if name != key}))


def test_a_model_that_nothing_helps_is_refused_without_advice(
    node: Callable[[float | None], None], composed: Compose
) -> None:
    node(4.0)
    with pytest.raises(ConfigError, match="No setting that is known to help makes it fit"):
        check(composed("recipe=seele_qwen2.5-7b"))


def test_on_a_node_without_gpus_the_hardware_files_card_is_assumed(
    node: Callable[[float | None], None], composed: Compose
) -> None:
    node(None)
    check(composed("recipe=seele_qwen2.5-7b"))
    with pytest.raises(ConfigError, match=r"which has 24.0 \(seele.memory.gpu_gib, because this node has"):
        check(composed("recipe=seele_qwen2.5-7b"), seele__memory__gpu_gib=24.0)


def test_more_gpus_are_advised_only_where_they_are(
    node: Callable[[float | None], None], composed: Compose, monkeypatch: pytest.MonkeyPatch
) -> None:
    node(79.0)
    config = with_changes(composed("recipe=seele_qwen2.5-7b"), {"trainer.n_gpus_per_node": 1})
    monkeypatch.setattr(memory, "num_cards", lambda: 1)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for supervised in (True, False):
        with pytest.raises(ConfigError, match="No setting that is known to help makes it fit"):
            check_memory(config, read_settings(config), supervised=supervised, num_problems=1000)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    with pytest.raises(ConfigError, match=r"This would fit: .*trainer.n_gpus_per_node=2"):
        check_memory(config, read_settings(config), supervised=True, num_problems=1000)


def test_a_critic_is_offloaded_like_the_policy(composed: Compose) -> None:
    config = composed("method=ppo", "hardware=gpu1_24", "model=qwen2_5_1_5b")
    assert config.critic.fsdp.offload_policy is True
    assert all(need.fits for need in needs_of(config)), memory_table(needs_of(config))


def test_the_check_may_warn_or_be_off(
    node: Callable[[float | None], None], composed: Compose, capsys: pytest.CaptureFixture[str]
) -> None:
    node(23.5)
    check(composed("recipe=seele_qwen2.5-7b"), seele__memory__check="warn")
    assert capsys.readouterr().err.startswith("warning: memory: rolling out needs ")
    check(composed("recipe=seele_qwen2.5-7b"), seele__memory__check="off")
    assert capsys.readouterr().err == ""


def test_each_kind_of_pass_has_its_own_micro_batches(composed: Compose) -> None:
    config = with_changes(
        composed("recipe=seele_qwen2.5-7b"),
        {
            "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz": False,
            "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 2,
            "actor_rollout_ref.ref.log_prob_use_dynamic_bsz": False,
            "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": 3,
            "actor_rollout_ref.actor.use_kl_loss": True,
        },
    )
    plan = memory.plan_of(
        config, read_settings(config), SHAPES[HUB_NAMES["Qwen/Qwen2.5-7B"]], card=GIB, supervised=False
    )
    assert plan.old_log_probs and plan.reference
    assert plan.update.tokens == config.actor_rollout_ref.actor.ppo_max_token_len_per_gpu
    assert plan.old_log_probs.tokens == 2 * plan.update.longest
    assert plan.reference.tokens == 3 * plan.update.longest


def test_all_checkpoints_of_the_planned_steps_are_counted_where_all_are_kept(composed: Compose) -> None:
    everything = {
        "trainer.max_actor_ckpt_to_keep": None,
        "trainer.total_training_steps": None,
        "trainer.total_epochs": 10,
        "trainer.save_freq": 5,
        "data.train_batch_size": 8,
    }
    shape = SHAPES[HUB_NAMES["Qwen/Qwen2.5-7B"]]

    def counted(supervised: bool, **changes: Any) -> int:
        own = {f"trainer.{name}": value for name, value in changes.items() if name != "minutes"}
        own["seele.save_every_minutes"] = changes.get("minutes")
        config = with_changes(composed("recipe=seele_qwen2.5-7b"), everything | own)
        settings = read_settings(config)
        return memory.plan_of(
            config, settings, shape, card=GIB, supervised=supervised, num_problems=80
        ).checkpoints

    assert counted(False) == 10 * 80 // 8 // 5 + 1
    # One that is only there because of its age goes once the next one is written.
    assert counted(False, minutes=30) == 10 * 80 // 8 // 5 + 2
    assert counted(False, save_freq=-1) == 0
    assert counted(False, save_freq=-1, minutes=30) == 2
    assert counted(False, save_freq=-1, minutes=30, max_actor_ckpt_to_keep=3) == 4
    assert counted(True, minutes=30) == counted(True) + 1


def test_checkpoints_of_a_supervised_run_are_counted_by_epochs_or_by_steps(composed: Compose) -> None:
    shape = SHAPES[HUB_NAMES["Qwen/Qwen2.5-7B"]]
    epochs = {"seele.sft.epochs": 2, "seele.sft.batch_size": 8}

    def counted(save_freq: int | None, *, bound: int | None = None, problems: int = 81) -> int:
        own = {"seele.sft.save_freq": save_freq, "trainer.total_training_steps": bound}
        config = with_changes(composed("recipe=luffy_sft_qwen2.5-math-7b"), epochs | own)
        settings = read_settings(config)
        plan = memory.plan_of(config, settings, shape, card=GIB, supervised=True, num_problems=problems)
        assert plan.whole_models == plan.checkpoints
        return plan.checkpoints

    # 2 * 81 // 8 are 20 steps.
    assert [counted(every) for every in (3, None, -1)] == [7, 2, 1]
    assert counted(3, bound=10) == 4
    assert counted(3, problems=0) == 2


# The engine's arguments and verl's own classes


@pytest.fixture(scope="module")
def parse() -> Iterator[Callable[[DictConfig], Any]]:
    """Parse vLLM's arguments as verl's server makes them, up to the start of the engine."""
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.platforms import current_platform

    class Server(vLLMHttpServer):
        def __init__(self, config: DictConfig) -> None:
            model = config.actor_rollout_ref.model
            self.config = omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
            self.model_config = SimpleNamespace(
                local_path="model",
                trust_remote_code=False,
                lora=model.lora,
                lora_rank=model.lora_rank,
                hf_config=SimpleNamespace(),
            )
            self.node_rank = self.replica_rank = 0
            self.nnodes, self.gpus_per_node, self.workers = 1, 8, []
            self._master_address = None
            self._disaggregation_role = "null"
            self.profiler_controller = SimpleNamespace(check_enable=lambda: False)

        def _should_profile(self) -> bool:
            return False

        async def run_server(self, args: Any) -> None:
            self.parsed = AsyncEngineArgs.from_cli_args(args)

    def parsed(config: DictConfig) -> Any:
        server = Server(config)
        asyncio.run(server.launch_server())
        return server.parsed

    with pytest.MonkeyPatch.context() as patch:
        if not current_platform.device_type:  # vLLM's CUDA build without a GPU
            patch.setattr(current_platform, "device_type", "cuda")
        yield parsed


def distinct_engines(composed: Compose) -> list[DictConfig]:
    """Return one configuration for each way our scripts, recipes and hardware files set the engine."""
    runs = [composed(*run) for run in composed_runs()]
    runs += [composed(*arguments_of(script)) for script in SCRIPTS]
    runs.append(composed("hardware=gpu_tiny", "job=tiny", "model=tiny"))
    texts = (OmegaConf.to_yaml(run.actor_rollout_ref.rollout, resolve=True) for run in runs)
    return [*dict(zip(texts, runs, strict=True)).values()]


def test_vllm_takes_the_engines_arguments_of_every_script_and_recipe(
    parse: Callable[[DictConfig], Any], composed: Compose
) -> None:
    engines = distinct_engines(composed)
    assert len(engines) >= 10
    for config in engines:
        rollout, arguments = config.actor_rollout_ref.rollout, parse(config)
        assert (
            arguments.max_model_len
            == rollout.max_model_len
            >= (config.data.max_prompt_length + config.data.max_response_length)
        )
        assert arguments.max_num_seqs == rollout.max_num_seqs
        assert arguments.tensor_parallel_size == rollout.tensor_model_parallel_size
        assert arguments.gpu_memory_utilization == rollout.gpu_memory_utilization
        assert arguments.kv_cache_memory_bytes == rollout.engine_kwargs.vllm.get("kv_cache_memory_bytes")
        assert arguments.enable_sleep_mode and arguments.enable_prefix_caching


def test_verls_classes_take_the_rest_of_every_hardware_file(composed: Compose) -> None:
    for hardware in (*GPU_FILES, "gpu_tiny", "cpu"):
        config = composed(f"hardware={hardware}", "model=tiny")
        # As verl's worker renames the reference's keys first (engine_workers.py, init_model).
        reference = OmegaConf.to_container(config.actor_rollout_ref.ref, resolve=True)
        renamed = {key: value for key, value in reference.items() if "log_prob" not in key} | {
            "use_dynamic_bsz": reference["log_prob_use_dynamic_bsz"],
            "ppo_max_token_len_per_gpu": reference["log_prob_max_token_len_per_gpu"],
            "ppo_mini_batch_size": 1,
        }
        sections = (config.actor_rollout_ref.actor, OmegaConf.create(renamed), config.algorithm)
        for section in sections:
            built = omega_conf_to_dataclass(section)
            assert type(built).__module__.startswith("verl.")
        actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
        assert actor.engine.entropy_from_logits_with_chunking == (hardware != "cpu")


# What the arithmetic counts


class Peak(TorchDispatchMode):
    """Peak bytes of simultaneously live tensors, among those created within the context."""

    def __init__(self) -> None:
        super().__init__()
        self.alive = self.most = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(made):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata not in self._known:
                storage = tensor.untyped_storage()
                self._known.add(storage._cdata)
                self.alive += storage.nbytes()
                self.most = max(self.most, self.alive)
                weakref.finalize(storage, self._forget, storage.nbytes(), storage._cdata)
        return made

    def _forget(self, size: int, key: int) -> None:
        self.alive -= size
        self._known.discard(key)


def test_adams_step_makes_what_is_counted() -> None:
    # On GPUs torch takes foreach by default, for DTensor too.
    parameters = [torch.nn.Parameter(torch.randn(1000)) for _ in range(3)]
    optimizer = torch.optim.AdamW(parameters, foreach=True)
    for _ in range(2):
        for parameter in parameters:
            parameter.grad = torch.randn(1000)
        with Peak() as peak:
            optimizer.step()
    assert 4.0 * 3000 <= peak.most <= 4.1 * 3000


def test_the_fused_kernel_makes_what_is_counted() -> None:
    from verl.utils.experimental.torch_functional import FusedLinearForPPO

    words, hidden, tokens = 4000, 8, 1024
    last = torch.randn(1, tokens, hidden, dtype=torch.bfloat16, requires_grad=True)
    weight = torch.randn(words, hidden, dtype=torch.bfloat16, requires_grad=True)
    ids = torch.randint(0, words, (1, tokens))

    def peak_bytes(*, gradient: bool, entropy: bool = False) -> float:
        with torch.set_grad_enabled(gradient), Peak() as peak:
            log_probs, entropies = FusedLinearForPPO()(last, weight, ids, 1.0)
            if gradient:
                (log_probs.sum() + (entropies.sum() if entropy else 0.0)).backward()
        return peak.most / (512 * words)

    assert 12.0 <= peak_bytes(gradient=False) <= 14.0
    assert 20.0 <= peak_bytes(gradient=True) <= 22.0
    assert 28.0 <= peak_bytes(gradient=True, entropy=True) <= 30.0


@pytest.mark.parametrize(("family", "slack"), [("Qwen2", 1.2), ("Qwen3", 1.05), ("Llama", 1.2)])
def test_a_layer_saves_what_is_counted(family: str, slack: float) -> None:
    import transformers

    sizes = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 1, "head_dim": 32}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 2}
    config = getattr(transformers, f"{family}Config")(
        vocab_size=64, **sizes, **heads, attn_implementation="sdpa"
    )
    model = transformers.AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    tokens = 256
    states = torch.randn(1, tokens, 256, dtype=torch.bfloat16, requires_grad=True)
    weights = {parameter.data_ptr() for parameter in model.parameters()}
    saved: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in weights:
            saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    rotation = model.model.rotary_emb(states, torch.arange(tokens)[None])
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.model.layers[0](states, position_embeddings=rotation)
    measured = sum(storage.nbytes() for storage in saved.values()) / tokens
    shape = shape_from(config)
    assert shape is not None
    assert measured <= layer_token(shape, Passes(tokens=tokens, longest=0)) <= slack * measured


@pytest.mark.parametrize("family", ["Llama", "Mistral", "Qwen2", "Qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_shape_has_the_parameters_of_hugging_faces_model(family: str, tied: bool) -> None:
    import transformers

    config = getattr(transformers, f"{family}Config")(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        tie_word_embeddings=tied,
    )
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    shape = shape_from(config)
    assert shape is not None
    assert shape.parameters == sum(parameter.numel() for parameter in model.parameters())


def test_a_mixture_of_experts_has_no_shape() -> None:
    import transformers

    assert shape_from(transformers.Qwen3MoeConfig()) is None
