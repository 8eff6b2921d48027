"""Configurations: every YAML composes, and a run has one plan."""

import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed")

import hydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ReadonlyConfigError

import seele_verl
from helpers.scripts import WINDOWS, script_arguments
from seele.config import SeeleConfig
from seele.data.overlong import Fits
from seele.errors import ConfigError
from seele.methods import METHODS, check_method
from seele_verl import measured_cost, options, runner, train
from seele_verl.changes import with_changes
from seele_verl.checks.command_line import JOB_OF_HARDWARE, check_job, check_names
from seele_verl.checks.compositions import check_composition
from seele_verl.checks.preflight import Preflight, check_batches
from seele_verl.checks.verl_settings import check_verl_settings
from seele_verl.checks.without_effect import check_has_effect, check_part_is_used
from seele_verl.compat import NOT_STARTED
from seele_verl.cpu import ENVIRONMENT
from seele_verl.measured_cost import cost_table, expected_steps
from seele_verl.plan import RESOLVED
from seele_verl.runs.log import RunLog
from seele_verl.runs.resume import final_step, missed_validation
from seele_verl.settings import read_settings
from seele_verl.train import compose

# --- Every YAML composes, builds, and agrees with the paper


ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "verl" / "seele_verl" / "config"
GROUPS = {
    group: sorted(path.stem for path in (CONFIGS / group).glob("*.yaml")) for group in ("method", "hardware")
} | {group: options.names(group) for group in options.GROUPS if group != "recipe"}


def composed(*overrides):
    config = compose(list(overrides))
    OmegaConf.resolve(config)
    return config


DOCUMENTED = re.findall(
    r"```yaml\n(# @package _global_\n# mine/(\w+)/(\w+)\.yaml\n.*?)```",
    (ROOT / "docs" / "extending.md").read_text(),
    re.DOTALL,
)


@pytest.mark.parametrize(("text", "group", "name"), DOCUMENTED, ids=[each[2] for each in DOCUMENTED])
def test_a_composition_of_ones_own_has_the_settings_that_the_docs_show(tmp_path, text, group, name):
    (tmp_path / group).mkdir()
    (tmp_path / group / f"{name}.yaml").write_text(text)
    config = train.compose([f"{group}={name}", "hardware=cpu", "job=tiny"], config_dir=str(tmp_path))
    wanted = OmegaConf.create(text)
    del wanted["defaults"]
    for key in ("actor_rollout_ref.actor", "seele"):
        for setting, value in (OmegaConf.select(wanted, key) or {}).items():
            found = OmegaConf.select(config, f"{key}.{setting}")
            assert OmegaConf.merge({"x": found}, {"x": value}) == {"x": found}, setting


@pytest.mark.parametrize("folder", ["it's, [x] ${y}", "none"])
def test_a_folder_of_compositions_may_have_any_name_and_must_exist(tmp_path, folder):
    named, method = tmp_path / folder, ["method=mine", "hardware=cpu", "job=tiny"]
    if folder == "none":
        with pytest.raises(ConfigError, match=r"--config-dir: .*none is not a folder"):
            train.compose(method, config_dir=str(named))
        return
    (named / "method").mkdir(parents=True)
    text = "# @package _global_\ndefaults: [grpo, _self_]\nseele: {hints: {rounds: 3}}\n"
    (named / "method" / "mine.yaml").write_text(text)
    assert train.compose(method, config_dir=str(named)).seele.hints.rounds == 3


@pytest.fixture
def own(tmp_path):
    """Compose a method of the user's own with this text."""

    def compose_own(text: str, *overrides: str) -> DictConfig:
        (tmp_path / "method").mkdir()
        (tmp_path / "method" / "mine.yaml").write_text(text)
        return compose(["method=mine", *overrides], config_dir=str(tmp_path))

    return compose_own


GRPO = "# @package _global_\ndefaults: [grpo, _self_]\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "defaults: [grpo, _self_]\nseele: {seed: 1}\n",
            r"^method: got \['seele'\], which has no effect there; make the first line of \S+/method/mine"
            r"\.yaml `# @package _global_`$",
        ),
        (f"# Mine.\n{GRPO}trainer: {{save_freq: 1}}\n", r"^method: got \['trainer'\], which has no effect"),
        (
            f"{GRPO}trainer: {{total_trainig_steps: 5}}\n",
            r"^--config-dir \S+: trainer.total_trainig_steps: unknown key \(did you mean 'total_training_s",
        ),
        (f"{GRPO}algorithm: {{norm_adv_by_std: false}}\n", r"\(did you mean 'norm_adv_by_std_in_grpo'\?\);"),
        (f"{GRPO}seele: {{hints: {{roundz: 2}}}}\n", r"hints.roundz: unknown key \(did you mean 'rounds'\?"),
        (f"{GRPO}trainers: {{save_freq: 1}}\n", r": trainers: unknown key \(did you mean 'trainer'\?\)"),
    ],
)
def test_what_a_composition_of_ones_own_sets_without_effect_is_refused(own, text, message):
    with pytest.raises(ConfigError, match=message):
        own(text)


def test_a_composition_of_ones_own_may_add_keys_where_others_may(own):
    text = (
        "actor_rollout_ref:\n"
        "  rollout: {enable_sleep_mode: false, engine_kwargs: {vllm: {seed: 1}}}\n"
        "trainer: {v1: {sampler: {sampler_kwargs: {x: 1}}}}\n"
    )
    added = ("+ray_kwargs.ray_init.log_to_driver=false", "+trainer.mine=2", "replay=successes")
    config = own(GRPO + text, *added)
    assert not config.actor_rollout_ref.rollout.enable_sleep_mode and config.trainer.mine == 2


def test_all_keys_that_our_files_set_are_known_to_the_check_of_a_users_own_files():
    known = compose(["hardware=cpu"])
    files = [OmegaConf.load(path) for path in sorted(CONFIGS.glob("*/*.yaml"))]
    for group in set(options.GROUPS) - {"data"}:
        files += [OmegaConf.create(values) for values in options.read_group(group).values()]
    for file in files:
        file.pop("defaults", None)
        check_names(file, known, Path("ours"), [])


def test_a_command_checks_the_users_own_files(tmp_path, monkeypatch, capsys):
    (tmp_path / "method").mkdir()
    (tmp_path / "method" / "mine.yaml").write_text(f"{GRPO}trainer: {{total_trainig_steps: 5}}\n")
    monkeypatch.chdir(tmp_path)
    for name in ("VERL_CONFIG_FOLDER", "HYDRA_FULL_ERROR"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(sys, "argv", ["seele train", "method=mine", "hardware=cpu", "--config-dir", "."])
    with pytest.raises(SystemExit, match="2"):
        train.main()
    assert f"--config-dir {tmp_path}: trainer.total_trainig_steps: unknown" in capsys.readouterr().err


@pytest.mark.parametrize(
    "choice",
    [
        f"{group}={name}"
        for group, names in GROUPS.items()
        for name in names
        if group != "method" and name != "problems"
    ],
)
def test_every_choice_composes_and_builds(choice):
    """Methods are composed below, by their script."""
    # A group with a replayed success has one round.
    config = composed(*["method=drgrpo"] * choice.startswith("replay="), choice)
    check_method(read_settings(config))


INTERPOLATED = {
    "prompt.chat_kwargs": "${data.apply_chat_template_kwargs}",
    "reward.format_score": "${data.format_score}",
    "sft.save_freq": "${trainer.save_freq}",
}
"""Defaults that follow another section; without it they are the dataclass's."""


@pytest.mark.parametrize(
    "overrides",
    [
        ["seele.hints.rounds=2", "method=uft", "actor_rollout_ref.rollout.n=4", "trainer.logger=[console]"],
        ["recipe=lze_baseline_qwen2.5-math-1.5b", "seele.seed=null", "seele.prompt.stop=[a,'b c']"],
        ["+data.mine={a: 1}", "++trainer.nnodes=2", "~data.val_files", "hardware=cpu", "+trainer.own.deep=x"],
        ["data=chains", "data.train_files=[a.parquet]", "seele.seed=1", "seele.seed=2"],
    ],
    ids=lambda overrides: overrides[0],
)
def test_the_suite_composes_what_hydra_does(monkeypatch, overrides):
    """Every other test takes the composition of conftest.py, which composes groups once."""
    of_the_suite = OmegaConf.to_yaml(compose(overrides))
    monkeypatch.setattr(hydra, "compose", hydra.compose.__wrapped__)
    assert of_the_suite == OmegaConf.to_yaml(compose(overrides))


@pytest.mark.parametrize("overrides", [["seele.no_such_setting=1"], ["+seele.seed=1"], ["~data.nothing"]])
def test_the_suite_refuses_what_hydra_does(monkeypatch, overrides):
    with pytest.raises(HydraException) as of_the_suite:
        compose(overrides)
    monkeypatch.setattr(hydra, "compose", hydra.compose.__wrapped__)
    with pytest.raises(HydraException) as real:
        compose(overrides)
    assert str(of_the_suite.value) == str(real.value)


def test_the_yaml_and_the_dataclasses_have_the_same_keys_and_defaults():
    written = OmegaConf.to_container(OmegaConf.load(CONFIGS / "seele.yaml").seele)
    assert written.pop("method") == "???"
    defaults = asdict(SeeleConfig(method="?"))
    # Set by the method, and by trainer.total_training_steps.
    for key in ("method", "training_steps"):
        del defaults[key]
    assert flat(written) == flat(defaults) | INTERPOLATED


def flat(section, prefix=""):
    """Return values by dotted key; an empty mapping is a value."""
    values = {}
    for key, value in section.items():
        is_section = isinstance(value, dict) and bool(value)
        values |= flat(value, f"{prefix}{key}.") if is_section else {f"{prefix}{key}": value}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def test_every_method_has_a_file_of_its_name():
    assert GROUPS["method"] == sorted(METHODS) == sorted(method.name for method in METHODS.values())


def test_the_paper_is_the_default():
    # arXiv:2509.06923v1, section 5.1.
    config = composed("method=seele", "hardware=gpu8")
    assert config.data.train_batch_size == 256
    assert config.data.max_response_length == 2048
    assert config.trainer.total_training_steps == 400
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    assert actor.ppo_mini_batch_size == 64
    assert (actor.use_kl_loss, actor.kl_loss_coef) == (True, 0.001)
    assert (rollout.n, rollout.temperature) == (32, 1.0)
    assert actor.loss_agg_mode == "seq-mean-token-sum-norm"
    assert actor.loss_scale_factor == 2048
    assert (config.algorithm.adv_estimator, config.algorithm.norm_adv_by_std_in_grpo) == ("grpo", False)
    seele = read_settings(config)
    assert (seele.hints.controller, seele.hints.rounds, seele.hints.target_accuracy) == ("bayes", 4, 0.5)
    assert seele.imitation.coefficient == 0.001


@pytest.mark.parametrize("data", ["countdown", "zebra", "arc_1d", "sec_2d"])
def test_only_secs_reasoning_tasks_reward_a_form(data):
    assert read_settings(composed(f"data={data}")).reward.format_score == 0.1
    assert read_settings(composed(f"data={data}", "seele.reward.format_score=0")).reward.format_score == 0.0
    assert read_settings(composed("data=chains")).reward.format_score == 0.0
    assert read_settings(composed("data=chains", "seele.reward.format_score=0.2")).reward.format_score == 0.2


def test_sec_2d_is_the_papers():
    # arXiv:2505.14970, appendix B: nine arms, alpha 0.5, tau 0.2.
    curriculum = read_settings(composed("data=sec_2d", "curriculum=sec_2d")).curriculum
    assert (curriculum.name, curriculum.columns) == ("sec", ("data_source", "level"))
    assert (curriculum.learning_rate, curriculum.temperature) == (0.5, 0.2)


def test_grpo_takes_as_many_rollouts_as_seele():
    seele, grpo = (composed(f"method={method}", "hardware=cpu", "job=tiny") for method in ("seele", "grpo"))
    assert seele.actor_rollout_ref.rollout.n == grpo.actor_rollout_ref.rollout.n
    assert read_settings(grpo).hints.rounds == 1


def test_only_the_cpu_file_names_the_cpu_stack():
    cpu, gpu = composed("hardware=cpu", "job=tiny"), composed("hardware=gpu8")
    variables = cpu.ray_kwargs.ray_init.runtime_env.env_vars
    assert ENVIRONMENT.items() <= variables.items()
    assert "env_vars" not in gpu.ray_kwargs.ray_init.runtime_env


SIZES = {
    "data.train_batch_size",
    "data.max_prompt_length",
    "data.max_response_length",
    "seele.hints.rollouts_per_prompt",
    "actor_rollout_ref.actor.ppo_mini_batch_size",
    "actor_rollout_ref.actor.optim.lr",
    "critic.optim.lr",
    "trainer.total_training_steps",
    "trainer.save_freq",
    "trainer.test_freq",
}


def test_hardware_sets_no_sizes():
    for name in GROUPS["hardware"]:
        file = OmegaConf.load(CONFIGS / "hardware" / f"{name}.yaml")
        assert not {key for key in SIZES if OmegaConf.select(file, key) is not None}, name


@pytest.mark.parametrize("hardware", GROUPS["hardware"])
def test_hardware_leaves_a_methods_sizes_and_a_job_sets_them(hardware):
    own, config = composed("method=luffy"), composed("method=luffy", f"hardware={hardware}")
    assert {key: OmegaConf.select(config, key) for key in SIZES} == {
        key: OmegaConf.select(own, key) for key in SIZES
    }
    tiny = composed("method=luffy", f"hardware={hardware}", "job=tiny")
    assert (tiny.actor_rollout_ref.actor.optim.lr, tiny.data.train_batch_size) == (1.5e-4, 16)
    assert tiny.trainer.total_training_steps == 30


def test_no_job_is_the_methods():
    assert composed("method=sft", "job=method") == composed("method=sft")


def test_luffy_keeps_its_learning_rate_without_a_gpu():
    config = composed("method=luffy", "hardware=cpu")
    assert config.actor_rollout_ref.actor.optim.lr == 1e-6
    assert (config.data.train_batch_size, config.trainer.total_training_steps) == (128, 500)
    # vLLM on a CPU does not split a prompt.
    assert config.actor_rollout_ref.rollout.max_num_batched_tokens == 2048 + 8192


@pytest.mark.parametrize(("hardware", "job"), JOB_OF_HARDWARE.items())
def test_a_command_on_small_hardware_says_how_large_its_run_is(hardware, job):
    typed = ["method=luffy", f"hardware={hardware}", "seele.seed=1"]
    with pytest.raises(ConfigError, match=rf"not given with hardware={hardware};.* job={job}, or job=method"):
        check_job(typed)
    for chosen in (job, "method", "null"):
        check_job([*typed, f"job={chosen}"])


def test_a_recipe_names_the_sizes_of_all_but_tiny_jobs():
    recipe = "recipe=luffy_qwen2.5-math-7b"
    check_job([recipe, "hardware=gpu1"])
    with pytest.raises(ConfigError, match=": job=tiny, or"):
        check_job([recipe, "hardware=cpu"])
    with pytest.raises(ConfigError, match=": job=small, or"):
        check_job(["recipe=null", "hardware=gpu1"])


def test_both_commands_print_a_configuration_without_starting_anything(tmp_path):
    def printed(*command):
        arguments = ("method=seele", "hardware=cpu", "job=tiny", "--cfg", "job")
        result = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, timeout=120, cwd=tmp_path
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    shown = printed(sys.executable, "-m", "seele_verl.train")
    assert OmegaConf.create(shown).seele.method == "seele"
    assert printed(Path(sys.executable).parent / "seele", "train") == shown
    assert not [*tmp_path.iterdir()]


def test_the_papers_script_composes_to_the_papers_run():
    config = composed(*script_arguments("train_qwen2.5-7b.sh", "seele.seed=3"))
    assert config.actor_rollout_ref.model.path == "Qwen/Qwen2.5-7B"
    assert (config.trainer.nnodes, config.trainer.n_gpus_per_node, config.trainer.device) == (1, 8, "cuda")
    assert (config.data.train_batch_size, config.actor_rollout_ref.actor.ppo_mini_batch_size) == (256, 64)
    assert read_settings(config).seed == 3
    check_starts(config)


def check_starts(config):
    """Run preflight's checks that need no data, and check that the longest sequence fits everywhere."""
    seele = read_settings(config)
    check_method(seele)
    check_batches(config, seele)
    check_composition(config, seele)
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    longest = config.data.max_prompt_length + config.data.max_response_length
    window = WINDOWS[config.actor_rollout_ref.model.path]
    assert longest <= (rollout.max_model_len or window) <= window
    # verl packs sequences into micro-batches and cannot cut one.
    ref = config.actor_rollout_ref.ref
    for limit in (
        actor.ppo_max_token_len_per_gpu,
        rollout.log_prob_max_token_len_per_gpu,
        ref.log_prob_max_token_len_per_gpu,
    ):
        assert longest <= limit
    assert config.trainer.n_gpus_per_node % rollout.tensor_model_parallel_size == 0


@pytest.mark.parametrize("method", GROUPS["method"])
def test_the_baselines_script_composes_every_method(method):
    config = composed(*script_arguments("train_baseline.sh", method, "seele.seed=3"))
    seele = read_settings(config)
    assert (seele.method, seele.seed) == (method, 3)
    assert config.trainer.default_local_dir == f"runs/{method}-qwen2.5-7b"
    check_starts(config)


MODEL_SCRIPTS = {
    "train_qwen2.5-1.5b.sh": "Qwen/Qwen2.5-1.5B",
    "train_qwen2.5-3b.sh": "Qwen/Qwen2.5-3B",
    "train_qwen2.5-math-7b.sh": "Qwen/Qwen2.5-Math-7B",
    "train_llama-3.2-3b.sh": "meta-llama/Llama-3.2-3B",
    "train_mathstral-7b.sh": "mistralai/Mathstral-7B-v0.1",
}


# LUFFY has the longest responses.
@pytest.mark.parametrize("method", ["seele", "luffy"])
@pytest.mark.parametrize("script", MODEL_SCRIPTS)
def test_a_models_script_composes_any_method(script, method):
    environment = {} if method == "seele" else {"METHOD": method}
    config = composed(*script_arguments(script, **environment))
    assert config.actor_rollout_ref.model.path == MODEL_SCRIPTS[script]
    assert read_settings(config).method == method
    assert read_settings(config).prompt.template == "r1_zero"
    check_starts(config)


def test_every_training_script_is_composed_here():
    scripts = {path.name for path in (ROOT / "scripts").glob("train_*.sh")}
    assert scripts == {"train_qwen2.5-7b.sh", "train_baseline.sh", "train_recipe.sh", *MODEL_SCRIPTS}


def test_scripts_take_the_model_the_files_and_the_hardware_from_the_environment():
    environment = {"MODEL": "models/x", "TRAIN": "a.parquet", "VALID": "b.parquet", "OUT": "runs/x"}
    for script in ("train_baseline.sh", "train_qwen2.5-3b.sh"):
        arguments = ["grpo"] if script == "train_baseline.sh" else []
        config = composed(*script_arguments(script, *arguments, HARDWARE="gpu1", **environment))
        assert config.actor_rollout_ref.model.path == "models/x"
        assert (config.data.train_files, config.data.val_files) == (["a.parquet"], ["b.parquet"])
        assert (config.trainer.default_local_dir, config.trainer.n_gpus_per_node) == ("runs/x", 1)


def test_the_engines_window_holds_the_longest_prompt_and_response():
    assert composed("model=qwen2_5_7b", "hardware=gpu8").actor_rollout_ref.rollout.max_model_len == 4096
    long = composed("method=luffy", "model=qwen2_5_math_7b_16k", "hardware=gpu8")
    assert long.actor_rollout_ref.rollout.max_model_len == 2048 + 8192
    short = composed("method=luffy", "model=qwen2_5_math_7b", "hardware=gpu8")
    assert short.actor_rollout_ref.rollout.max_model_len == 4096
    assert short.data.max_response_length == 2048, "LUFFY's 8,192 do not fit"


def test_an_engine_takes_a_rounds_requests_at_once():
    # 256 problems x 32 rollouts / 4 rounds / 8 engines; half of the engines get twice as many.
    assert composed("hardware=gpu8").actor_rollout_ref.rollout.max_num_seqs == 256
    halves = composed("hardware=gpu8", "actor_rollout_ref.rollout.tensor_model_parallel_size=2")
    assert halves.actor_rollout_ref.rollout.max_num_seqs == 512
    # All rollouts in one round would be 1,024.
    assert composed("hardware=gpu8", "method=grpo").actor_rollout_ref.rollout.max_num_seqs == 512
    # 8 rollouts; after a failure, all of them again.
    assert composed("hardware=gpu8", "method=ghpo").actor_rollout_ref.rollout.max_num_seqs == 256
    # 4 + 2 + 1 + 1 rollouts are scaled up to rounds of 16, 8, 4 and 4.
    uneven = composed("hardware=gpu8", "method=trapo", "seele.hints.rollouts_per_prompt=32")
    assert uneven.actor_rollout_ref.rollout.max_num_seqs == 512


def test_a_data_file_of_ones_own_has_its_keys_at_the_top_level(tmp_path):
    file, mine = tmp_path / "data" / "mine.yaml", str(tmp_path)
    file.parent.mkdir()
    head = "# @package _global_\ndefaults: [chains, _self_]\n"
    file.write_text(f"{head}train_files: [mine.parquet]\n")
    assert compose(["data=mine"], config_dir=mine).data.train_files == ["mine.parquet"]
    file.write_text(f"{head}data: {{train_files: [mine.parquet]}}\n")
    with pytest.raises(ConfigError, match=r"data.data: got \['train_files'\], which has no effect"):
        compose(["data=mine"], config_dir=mine)


def test_a_run_takes_what_the_benchmarks_set(load_from):
    rounds, reference, runs = (
        load_from(ROOT / "benchmarks", name) for name in ("rounds", "reference", "runs")
    )
    for job in (rounds.JOB, *(job for program, job in reference.VARIANTS.values() if program == runs.OURS)):
        typed = [*runs.JOB, *job]
        config = compose(typed)
        check_has_effect(typed)
        check_part_is_used(typed, config, read_settings(config))
        check_verl_settings(config)


# --- A run has one plan: every change to the configuration is in ``resolved.yaml``, and nothing changes it
# afterwards


PACKAGE = Path(seele_verl.__file__).parent
WRITES = re.compile(
    r"open_dict\(|OmegaConf\.(update|set_\w+)\(|"
    r"^\s*(self\.)?(config|stage|sft|plan|first|second|section)(\.\w+|\[[^\]]+\])+ = ",
    re.MULTILINE,
)


def test_one_place_writes_to_a_configuration():
    found = {
        str(path.relative_to(PACKAGE)): len(WRITES.findall(path.read_text()))
        for path in PACKAGE.rglob("*.py")
        if WRITES.search(path.read_text())
    }
    # The plan is made read-only at once.
    assert found == {"changes.py": 3, "plan.py": 1}


def test_a_change_leaves_the_configuration_it_begins_with():
    config = OmegaConf.create({"a": {"b": 1, "c": 2}, "d": "${a.b}"})
    OmegaConf.set_struct(config, True)
    OmegaConf.set_readonly(config, True)
    changed = with_changes(config, {"a.b": 3, "a.new": {"x": 1}})
    assert changed == {"a": {"b": 3, "c": 2, "new": {"x": 1}}, "d": 3}
    assert with_changes(changed, {"a": {"b": 4}}) == {"a": {"b": 4}, "d": 4}
    assert config == {"a": {"b": 1, "c": 2}, "d": 1}
    changed.a.b = 5
    with pytest.raises(ReadonlyConfigError):
        config.a.b = 5


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """Run a command up to its training, and return the plan of that training."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train.os, "environ", train.os.environ.copy())
    seen = []

    def check_run(config, overrides, *, machine):
        fits = (Fits(left_out={"a": "is long"}), Fits())
        counts = {"num_unhintable": 0, "num_validation": 1, "num_validation_trained_on": 0}
        return Preflight(seele=read_settings(config), num_problems=40, fits=fits, **counts)

    def go(config, folder, preflight, resumed_at, python, overrides):
        seen.append((config, (folder / RESOLVED).read_text()))
        # verl may write to its own copy, but not to the plan.
        verls = with_changes(config, {})
        verls.trainer.total_epochs = 77

    monkeypatch.setattr("seele_verl.runs.stages.check_run", check_run)
    monkeypatch.setattr(train, "_train", go)
    monkeypatch.setattr(train, "count_parameters", lambda path, **_: 1)

    def run(*overrides):
        typed = ["hardware=cpu", "job=tiny", "trainer.default_local_dir=runs/x", *overrides]
        train.run(train.compose(typed), typed)
        config, written = seen.pop()
        assert OmegaConf.to_yaml(config) == written == Path("runs/x", RESOLVED).read_text()
        return config

    return run


def test_nothing_changes_after_the_plan_is_written(planned, tmp_path):
    Path("mine.txt").write_text("{question}")
    plan = planned("method=seele", "seele.prompt.template=mine.txt", "seele.rollout_cache=cache")
    with pytest.raises(ReadonlyConfigError):
        plan.trainer.total_epochs = 1
    assert "${" not in OmegaConf.to_yaml(plan)
    assert plan.trainer.default_local_dir == f"{tmp_path}/runs/x"
    assert plan.seele.prompt.template == f"{tmp_path}/mine.txt"
    assert plan.seele.rollout_cache == f"{tmp_path}/cache"
    assert plan.data.train_files == [f"{tmp_path}/data/prepared/chains/train.parquet"]
    assert plan.data.overlong_record == f"{tmp_path}/runs/x/too_long.json"
    # With 40 problems, 16 per step, 30 steps end in epoch 15.
    assert (plan.trainer.total_training_steps, plan.trainer.total_epochs) == (30, 16)
    variables = plan.ray_kwargs.ray_init.runtime_env.env_vars
    assert f"{tmp_path}/runs/x/tensorboard" == variables.TENSORBOARD_DIR
    assert variables.VERL_PLATFORM == "cpu"


def test_files_of_parts_of_ones_own_are_absolute(planned, tmp_path):
    plan = planned("seele.hints.controller=own/c.py:Mine", "+seele.hints.settings.other=[x.py:Y,z]")
    assert plan.seele.hints.controller == f"{tmp_path}/own/c.py:Mine"
    assert plan.seele.hints.settings.other == [f"{tmp_path}/x.py:Y", "z"]
    assert (
        planned("seele.hints.controller=package.module:Mine").seele.hints.controller == "package.module:Mine"
    )


def test_what_verl_is_told_follows_from_the_settings(planned):
    correction = planned("method=seele", "seele.curriculum.spare_problems=4").algorithm.rollout_correction
    assert (correction.bypass_mode, correction.rollout_is) == (True, None)
    assert planned("method=prefix_rft").algorithm.rollout_correction.bypass_mode is False
    spare = planned("method=seele", "seele.curriculum.spare_problems=4").trainer.v1.sampler.custom_sampler
    assert spare == {"path": "pkg://seele_verl.replay_buffer", "name": "SpareProblemsBuffer"}
    off = "algorithm.rollout_correction.bypass_mode=false"
    weighed = planned("method=seele", "seele.rollout_correction=mis", off).algorithm.rollout_correction
    assert (weighed.rollout_is, weighed.rollout_is_threshold) == ("token", "1e-9_2.0")
    packed, verls = (
        planned("method=ppo", f"seele.packed_updates={on}").actor_rollout_ref.model.external_lib
        for on in ("true", "false")
    )
    assert (packed, verls) == (["seele_verl.fused_head", "seele_verl.packed_engine"], "seele_verl.fused_head")
    engine = "actor_rollout_ref.rollout.engine_kwargs.vllm"
    assert "logits_processors" not in OmegaConf.select(planned("method=grpo"), engine)
    own = f"+{engine}.logits_processors=[mine:Mine]"
    stopping = OmegaConf.select(planned("method=milestones", own), engine).logits_processors
    assert stopping == ["mine:Mine", "seele_verl.engine.stopping:StopAtError"]


def run_training_with(monkeypatch, run_ppo, validate_config=lambda **_: None) -> DictConfig:
    """Run training with a double for verl and Ray; return the plan."""
    config = OmegaConf.create({"ray_kwargs": {"ray_init": {"runtime_env": {"py_executable": None}}}})
    OmegaConf.set_readonly(config, True)
    monkeypatch.setattr(runner, "validate_config", validate_config)
    monkeypatch.setattr(runner, "need_reference_policy", lambda _: False)
    monkeypatch.setattr(runner, "need_critic", lambda _: False)
    monkeypatch.setattr(runner, "run_ppo", run_ppo)
    monkeypatch.setattr(runner, "files_to_share", lambda _: {})
    monkeypatch.setattr(runner, "ray", SimpleNamespace(remote=lambda cls: cls, shutdown=lambda: None))
    runner.run_training(config, python="/forked/python")
    return config


@pytest.mark.parametrize(
    ("message", "failures", "starts"),
    [(NOT_STARTED, 2, 3), (NOT_STARTED, 3, None), ("a step failed", 1, None)],
)
def test_ray_is_started_again_where_it_did_not_start(monkeypatch, message, failures, starts):
    begun = []

    def run_ppo(config, task_runner_class):
        begun.append(config)
        if len(begun) <= failures:
            raise Exception(f"{message}. This could happen")

    if starts is None:
        with pytest.raises(Exception, match=message):
            run_training_with(monkeypatch, run_ppo)
    else:
        run_training_with(monkeypatch, run_ppo)
    assert len(begun) == (starts or failures)


def test_all_that_verl_says_of_settings_that_it_refuses_is_told(monkeypatch):
    def refuse(**_):
        raise AssertionError("first line\nsecond line")

    with pytest.raises(ConfigError, match=r"^verl refuses these settings: first line\nsecond line$"):
        run_training_with(monkeypatch, lambda *_, **__: None, validate_config=refuse)


def test_verl_gets_a_copy_and_the_interpreter_of_the_run(monkeypatch):
    told = []
    config = run_training_with(monkeypatch, lambda config, task_runner_class: told.append(config))
    (verls,) = told
    assert verls.ray_kwargs.ray_init.runtime_env.py_executable == "/forked/python"
    verls.ray_kwargs.ray_init.runtime_env.py_executable = None
    assert config.ray_kwargs.ray_init.runtime_env.py_executable is None


@pytest.mark.parametrize(
    ("step", "line", "budget", "missed"),
    [
        (10, {}, None, True),
        (10, {"val/accuracy/x": 0.5}, None, False),
        (12, {}, None, False),
        (30, {}, None, True),  # the last step
        (12, {}, 100, True),  # the last step by the budget, which the one before reached
    ],
)
def test_a_validation_that_a_killed_run_missed_is_made_up_for(tmp_path, step, line, budget, missed):
    trainer = {"test_freq": 10 if step != 30 else 100}
    config = OmegaConf.create({"trainer": trainer, "seele": {"max_generated_tokens": budget}})
    log = RunLog(tmp_path)
    for number in range(1, step + 1):
        log.append(number, {"tokens/generated": 100 if number == step - 1 else 0})
    found = log.rewind(step) | line
    ends_at = final_step(config, log.generated, total_steps=30)
    assert missed_validation(config, found, ends_at=ends_at) is missed
    config.trainer.test_freq = -1
    assert not missed_validation(config, found, ends_at=ends_at)


def test_settings_are_read_from_a_plan_as_from_what_was_composed(planned):
    plan = planned("method=seele")
    assert read_settings(plan) == read_settings(train.compose(["hardware=cpu", "job=tiny"]))
    assert isinstance(read_settings(plan), SeeleConfig)


def test_a_measured_step_tells_what_the_run_takes(planned):
    config = planned("method=seele", "trainer.total_training_steps=40", "trainer.test_freq=20")
    step = {"timing_s/gen": 20.0, "timing_s/update_actor": 30.0, "timing_s/ref": 0.01, "timing_s/step": 60.0}
    step |= {"timing_s/testing": 16.0, "tokens/generated": 2000, "tokens/trained": 12_000}
    table = cost_table(config, step, problems=100, validated=64)
    cells = {line.split(" | ")[0].strip("| *"): line.split(" | ")[1:] for line in table.splitlines()[2:]}
    assert cells["rollouts"] == ["20.0", "2,000 tokens, 100 a second |"]
    assert cells["update"] == ["30.0", "12,000 tokens, 400 a second |"]
    assert "reference" not in cells
    assert cells["the rest"][0] == "10.0" and cells["step"][0] == "60.0"
    assert cells["a validation"] == ["32.0", "64 problems, from 32 |"]
    assert cells["run"] == ["2496", "42 minutes: 40 steps, 3 validations |"]
    config = planned("method=seele", "seele.data.validated_training_problems=16")
    assert "| 40.0 | 80 problems, from 32 |" in cost_table(config, step, problems=100, validated=64)
    assert "| 37.0 | 74 problems, from 32 |" in cost_table(config, step, problems=10, validated=64)
    # A token budget ends the run earlier; without a number of steps, the epochs decide.
    budget = planned("method=seele", "trainer.total_training_steps=40", "seele.max_generated_tokens=9000")
    assert expected_steps(budget, 2000.0, 100) == 6, "the step after the one that reaches the budget"
    passes = planned("method=seele", "data.train_batch_size=8", "trainer.total_training_steps=null")
    trainer = passes.trainer
    assert (trainer.total_training_steps, trainer.total_epochs) == (150, 31), "schedules need the number"


MEASURED = {"timing_s/gen": 2.0, "timing_s/update_actor": 3.0, "timing_s/step": 6.0, "timing_s/testing": 4.0}
MEASURED |= {"tokens/generated": 2000, "tokens/trained": 12_000}


@pytest.fixture
def measured(monkeypatch):
    """The commands of the runs that are measured, none of which starts. Each file has 50 problems."""
    commands = []

    def start(command, **_):
        commands.append(command)
        (folder,) = (each.partition("=")[2] for each in command if each.startswith("trainer.default_local"))
        RunLog(Path(folder)).append(2, MEASURED)

    def read(files, most):
        return range(50 * len(files))[: None if most < 0 else most]

    monkeypatch.setattr(measured_cost, "subprocess", SimpleNamespace(Popen=start))
    monkeypatch.setattr(measured_cost, "_wait_for", lambda process: 0)
    monkeypatch.setattr(measured_cost, "read_problem_files", read)
    return commands


RUN_OF_8 = ["method=grpo", "hardware=cpu", "job=tiny", "data.val_max_samples=8"]


def test_a_measured_run_validates_no_more_than_the_run_and_saves_nothing(measured, capsys):
    assert measured_cost.main([*RUN_OF_8, "seele.save_every_minutes=1"]) == 0
    (command,) = measured
    settings = dict(each.partition("=")[::2] for each in command)
    assert settings["data.val_max_samples"] == "8" and settings["seele.save_every_minutes"] == "null"
    assert "| a validation | 4.0 | 8 problems, from 8 |" in capsys.readouterr().out
    assert measured_cost.main(RUN_OF_8[:-1]) == 0
    assert "data.val_max_samples=32" in measured[-1]
    assert "problems, from 32 |" in capsys.readouterr().out
    assert measured_cost.main([*RUN_OF_8[:-1], "data.val_max_samples=null"]) == 2
    assert "data.val_max_samples: expected a whole number" in capsys.readouterr().err
    assert measured_cost.main(["hardware"]) == 2
    assert "error: hardware: no value" in capsys.readouterr().err and len(measured) == 2


def test_a_measured_run_reads_what_was_prepared_of_references(measured, monkeypatch, capsys):
    def prepare(config):
        assert len(measured) == 1, "the run checks its settings before anything is fetched"
        sys.stdout.write("preparing\n")
        return with_changes(config, {"data.val_files": ["one.parquet"], "data.train_files": ["two.parquet"]})

    monkeypatch.setattr(measured_cost, "has_references", lambda config: True)
    monkeypatch.setattr(measured_cost, "prepare_references", prepare)
    files = ("data.train_files=[hf://me/train]", "data.val_files=[hf://me/one,hf://me/two]")
    assert measured_cost.main([*RUN_OF_8[:-1], *files]) == 0
    said = capsys.readouterr()
    assert "| 6.2 | 50 problems, from 32 |" in said.out
    assert said.out.startswith("| phase |") and said.err == "preparing\n"


def test_a_run_with_compositions_of_ones_own_is_measured(measured, tmp_path, capsys):
    (tmp_path / "method").mkdir()
    (tmp_path / "method" / "mine.yaml").write_text(f"{GRPO}data: {{val_max_samples: 8}}\n")
    own = ["--config-dir", str(tmp_path), "method=mine", "hardware=cpu", "job=tiny"]
    assert measured_cost.main(own) == 0
    (command,) = measured
    assert command[3:6] == own[2:] and command[-1] == f"--config-dir={tmp_path}"
    assert "8 problems, from 8 |" in capsys.readouterr().out
    assert measured_cost.main(["--config-dir", str(tmp_path / "none"), *own[2:]]) == 2
    assert f"error: --config-dir: {tmp_path}/none is not a folder" in capsys.readouterr().err


def test_a_step_is_measured_of_runs_with_rollouts_only(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["measured_cost", "method=sft", "hardware=cpu", "job=tiny"])
    assert measured_cost.main() == 2
    assert "--measure: method=sft trains without rollouts" in capsys.readouterr().err
