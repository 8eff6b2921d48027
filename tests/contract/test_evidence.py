"""The plan of docs/evidence.md can be run, and its tables match the stored runs."""

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import ClassVar

import pytest

from helpers.scripts import run_script

pytest.importorskip("verl.trainer", reason="verl is not installed")

from seele.data.storage.files import file_sha256
from seele.data.storage.schema import write_problems
from seele.errors import ConfigError, DataError
from seele.records import Finish, GradeReason, Instance, Segment, Walk
from seele.report.build import summarise
from seele.report.comparison.analysis import compare
from seele.report.comparison.curves import COSTS, spent
from seele.report.figures import draw_figures
from seele.report.series import PRACTICE
from seele.reward.milestones import find_milestones, walk
from seele.reward.walks import find_walk
from seele.rollout.unanswered import Graded
from seele_verl.checks.preflight import check_settings
from seele_verl.settings import read_settings
from seele_verl.train import compose

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "benchmarks" / "evidence"


@pytest.fixture
def evidence(load_from):
    return load_from(EVIDENCE, "plan"), load_from(EVIDENCE, "tables")


def test_every_arm_composes_with_its_budget(evidence, monkeypatch):
    plan, _ = evidence
    contents = plan.load_plan()
    monkeypatch.setattr(plan, "_tuned", lambda: dict.fromkeys(plan.tuned_arms(contents), 3e-4))
    jobs = [*plan.task_jobs(contents, "mixed", plan.default_arms(contents, "mixed"), [3])]
    assert len(jobs) == len(contents["arms"]) + len(contents["ablations"]) and len(
        {job.name for job in jobs}
    ) == len(jobs)
    for job in jobs:
        config = compose([*job.overrides])
        settings = read_settings(config)
        assert (settings.seed, config.actor_rollout_ref.actor.optim.lr) == (3, 3e-4)
        name = job.name.split("/")[1]
        is_ablation, arm = name in contents["ablations"], plan.all_arms(contents)[name]
        size = contents["ablation_size"] if is_ablation else contents["tasks"]["mixed"]
        plans_ahead = "schedule" in arm or "supervised" in arm
        assert settings.max_generated_tokens == (None if plans_ahead else size["generated_tokens"]), job.name


def test_the_base_accuracy_is_counted_per_problem_and_hint(load_from, tmp_path, monkeypatch):
    base_accuracy = load_from(EVIDENCE, "base_accuracy")
    problem = Instance(
        instance_id="p0", data_source="chains", question="1+2+3=?", steps=("1+2=3\n", "3+3=6"), answer="6"
    )
    write_problems(tmp_path / "train.parquet", [problem], split="train")
    right, wrong = Graded("6", GradeReason.CORRECT, Finish.STOP), Graded("5", GradeReason.WRONG, Finish.STOP)
    monkeypatch.setattr(
        base_accuracy,
        "sample_hinted",
        lambda model, asked, samples, **_: [[right] * revealed + [wrong] * 2 for _, revealed in asked],
    )
    assert base_accuracy.measure(Path("model"), tmp_path / "train.parquet", samples=4, seed=0) == {
        "p0": [revealed / 4 for revealed in range(len(problem.legal_hint_ratios))]
    }


def test_every_published_method_may_run(evidence, monkeypatch):
    plan, _ = evidence
    contents = plan.load_plan()
    monkeypatch.setattr(plan, "_tuned", lambda: dict.fromkeys(plan.tuned_arms(contents), 3e-4))
    monkeypatch.chdir(ROOT)
    for job in plan.task_jobs(contents, "methods_own", list(contents["published"]), [10]):
        settings = check_settings(compose([*job.overrides]), job.overrides)
        assert settings.method == job.name.split("/")[1] and settings.hints.rollouts_per_prompt == 8


def test_every_arm_with_credit_may_run(evidence, monkeypatch):
    plan, _ = evidence
    contents = plan.load_plan()
    monkeypatch.setattr(plan, "_tuned", lambda: dict.fromkeys(plan.tuned_arms(contents), 3e-4))
    monkeypatch.chdir(ROOT)
    walks = set()
    for task in ("milestones_factorial", "milestones_checker"):
        for job in plan.task_jobs(contents, task, plan.default_arms(contents, task), [10]):
            settings = check_settings(compose([*job.overrides]), job.overrides)
            assert settings.max_generated_tokens == 300000
            find_walk(settings.credit.walk)
            walks.add(settings.credit.walk)
    assert len(walks) == 9  # three shares of milestones, three of errors


def test_a_weak_walk_without_weakness_is_the_exact_one(load_from):
    weak = load_from(EVIDENCE, "weak_walk")
    milestones = find_milestones("3 a+2 b+3 c+8", ("3a+2b+3=8\n", "8c+8=6\n", r"\boxed{6}"), "6")
    exact = weak.weak_walk(visible=1, false_alarms=0, false_passes=0)
    texts = (
        "3a+2b+3=8\n8c+8=6\n\\boxed{6}",
        "3a+2b+3=8\n8c+8=5\n\\boxed{5}",
        "3a+2=5\n5b+3=1\n1c+8=9",
        "3a+2=5\n5b+3=8\n8c+8=6\n\\boxed{6}",
        "8c+8=6\n\\boxed{6}",
        "so\n",
    )
    for text, correct, shown in product(texts, (True, False, None), (0, 1)):
        assert exact(milestones, text, correct=correct, shown=shown) == walk(
            milestones, text, correct=correct, shown=shown
        )
    blind = weak.weak_walk(visible=0, false_alarms=1, false_passes=1)
    assert blind(milestones, texts[1], correct=False) == Walk((Segment(0, 26, 1, False),), None)
    wrong = weak.weak_walk(visible=1, false_alarms=1, false_passes=1)
    # The right value is an alarm; the wrong one passes.
    assert wrong(milestones, texts[0], correct=None).segments == (Segment(0, 9, 0, False),)
    assert wrong(milestones, texts[2], correct=None).segments == (Segment(0, 13, 0, True),)


def test_a_claim_is_made_against_the_best_other_arm_at_equal_cost(evidence, monkeypatch):
    _, tables = evidence
    # By hand: 0.005 x 4, 0.01 x 3, 0.03 x 2, and the last no smaller than the previous one.
    assert tables.holm_adjusted([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    monkeypatch.setattr(tables, "CLAIM_TASKS", ("mixed",))
    monkeypatch.setattr(tables, "CLAIMED", ("uft-n8", "seele"))
    _, _, generated, trained = tables.claim_table(["grpo", "sft_rl", "seele-n8-late"]).splitlines()
    assert "590.6 k tokens generated" in generated and "900 k tokens trained" in trained
    assert all("`seele-n8-late`" in row for row in (generated, trained))
    # Nothing is compared before the last planned run.
    monkeypatch.setattr(tables, "load_plan", lambda: {"tasks": {"mixed": {"seeds": range(6)}}})
    assert tables.claim_table(["grpo", "sft_rl", "seele-n8-late"]) == "Not all of the runs are done.\n"


def test_the_command_knows_every_task_of_the_plan(evidence):
    plan, _ = evidence
    printed = run_script(ROOT / "scripts" / "evidence.sh").stdout
    assert re.findall(r"run\.py (\w+)", printed) == ["tuning", "tuning", *plan.load_plan()["tasks"]]


def test_a_task_whose_runs_are_all_stored_needs_no_base_model(load_from, monkeypatch, capsys):
    run = load_from(EVIDENCE, "run")
    monkeypatch.setattr(run, "prepare", lambda task: pytest.fail(f"{task} is prepared"))
    monkeypatch.setattr(sys, "argv", ["run.py", "arc_1d"])
    with pytest.raises(SystemExit) as ended:
        run.main()
    assert ended.value.code == 0
    assert (
        capsys.readouterr().out
        == "arc_1d/grpo/seed_0: stored already\narc_1d/grpo+sec/seed_0: stored already\n"
    )
    # They can be made without a run, for those of one's own.
    made = []
    monkeypatch.setattr(run, "prepare", made.append)
    monkeypatch.setattr(sys, "argv", ["run.py", "arc_1d", "--prepare"])
    with pytest.raises(SystemExit) as ended:
        run.main()
    assert (ended.value.code, made, capsys.readouterr().out) == (0, ["arc_1d"], "")


def test_hints_that_end_do_so_after_60_percent_of_the_planned_steps(evidence, monkeypatch):
    plan, _ = evidence
    contents = plan.load_plan()
    monkeypatch.setattr(plan, "_tuned", dict)
    job = next(plan.tuning_jobs(contents, ["seele-std-n8-withdrawn"]))
    config = compose(job.overrides)
    assert config.trainer.total_training_steps == 48
    assert read_settings(config).hints.settings["withdraw_by"] == 29


def test_the_main_task_has_the_ablations_too_with_fewer_seeds(evidence, monkeypatch):
    plan, _ = evidence
    contents = plan.load_plan()
    monkeypatch.setattr(plan, "_tuned", lambda: dict.fromkeys(plan.tuned_arms(contents), 3e-4))
    arms = plan.default_arms(contents, "mixed")
    names = [job.name for job in plan.task_jobs(contents, "mixed", arms, [])]
    seeds = {arm: [name.split("_")[-1] for name in names if f"/{arm}/" in name] for arm in arms}
    assert seeds["seele"] == ["0", "1", "2", "3", "4"] and seeds["seele-m1"] == ["0", "1", "2"]
    assert plan.default_arms(contents, "own") == contents["tasks"]["own"]["arms"]
    for settings in contents["tasks"].values():
        known = {*contents["arms"], *plan.credit_arms(contents), *contents["released"]}
        known |= {*contents["published"]}
        assert set(settings.get("arms", [])) <= known


def test_every_task_composes_with_its_own_problems_and_base_model(evidence, monkeypatch):
    plan, tables = evidence
    contents = plan.load_plan()
    monkeypatch.setattr(plan, "_tuned", lambda: {"grpo": 3e-4})
    for task, settings in contents["tasks"].items():
        (job,) = plan.task_jobs(contents, task, ["grpo"], [0])
        config = compose([*job.overrides])
        assert config.data.train_files == [f"{plan.problems_of(task)}/train.parquet"]
        assert config.actor_rollout_ref.model.path == f"models/{settings['base_model']}"
        assert tables.split_of(task, "heldout") == f"{settings['source']}/heldout"
        assert read_settings(config).reward.format_score == (0.0 if settings["source"] == "chains" else 0.1)


def test_every_method_has_as_many_trials_of_its_learning_rate(evidence, monkeypatch):
    plan, _ = evidence
    contents = plan.load_plan()
    monkeypatch.setattr(plan, "_tuned", lambda: {"sft": 1e-4})
    arms = plan.tuned_arms(contents)
    jobs = [job.name for job in plan.tuning_jobs(contents, arms)]
    assert len(jobs) == len(arms) * len(contents["tuning"]["learning_rates"])
    groups = ("arms", "credit", "published", "released", "ablations")
    planned = {name: arm for group in groups for name, arm in contents[group].items()}
    assert {arm.get("tuned_as", name) for name, arm in planned.items()} == set(arms)
    tried = plan.tuning_jobs(contents, ["seele-no-imitation"])
    rates = [compose(job.overrides).actor_rollout_ref.actor.optim.lr for job in tried]
    assert rates == contents["tuning"]["learning_rates"]


def test_the_best_trial_wins_once_there_are_all(evidence):
    _, tables = evidence
    trials = {"grpo": {1e-4: 0.2, 3e-4: 0.3, 6e-4: 0.3}, "uft": {1e-4: 0.2}}
    assert tables.tuned_rates(trials, [1e-4, 3e-4, 6e-4]) == {"grpo": 3e-4}


def test_the_simulated_world_learns_as_fast_as_the_run(load_from):
    prediction = load_from(EVIDENCE, "prediction")

    names, ratio_PJ, is_legal_PJ, accuracy_PJ = prediction.base_world()
    assert len(names) == 512 and is_legal_PJ[:, 0].all() and (ratio_PJ[:, 0] == 0).all()
    base = accuracy_PJ[:, 0].mean()
    assert prediction.power_of(base / 2) == pytest.approx(1.0, abs=1e-5)
    for unhinted in (0.2, 0.6):
        assert (accuracy_PJ[:, 0] ** prediction.power_of(unhinted)).mean() == pytest.approx(
            unhinted, abs=1e-4
        )


def test_a_stored_run_is_simulated_step_by_step(evidence, load_from):
    _, tables = evidence
    prediction = load_from(EVIDENCE, "prediction")

    run = tables.read(Path("tuning/seele/lr_0.0003"))
    measured, predicted = (
        prediction.measured(run),
        prediction.predicted(run, heldout=f"val/accuracy/{tables.split_of('mixed', 'tune')}"),
    )
    steps = run.metrics[-1]["step"]
    for field in prediction.PANELS:
        course, simulated = getattr(measured, field), getattr(predicted, field)
        assert len(course) == len(simulated) == steps
        assert simulated.min() > 0.0 and simulated.max() < 1.0
    # While nothing is known of problems, they get the same hints in both.
    assert predicted.hint_ratio_S[0] == pytest.approx(measured.hint_ratio_S[0], abs=0.1)
    worth_S = measured.worth_S
    assert prediction.by_thirds([worth_S, worth_S]) == prediction.by_thirds([worth_S])


def test_a_task_without_a_page_gets_one_with_all_its_tables(evidence, tmp_path, monkeypatch):
    _, tables = evidence
    monkeypatch.setattr(tables, "TASK_PAGES", tmp_path)
    monkeypatch.setattr(tables, "PAGES", ())
    templates = [template for blocks in tables.SECTIONS.values() for template in blocks]
    made = {template.format("easy"): f"{template}\n" for template in templates}
    (page,) = tables.pages({"tasks": {"easy": {}}}, made).items()
    assert page[0] == tmp_path / "easy.md"
    assert all(
        f"<!-- table {name} -->\n{text}<!-- end -->" in page[1].decode() for name, text in made.items()
    )


def test_every_page_says_where_its_runs_are_and_how_to_make_and_unpack_them(evidence):
    plan, tables = evidence
    for task in ("tuning", *plan.load_plan()["tasks"]):
        page = (ROOT / "docs" / "evidence" / f"{task}.md").read_text()
        assert f"<!-- table {task}-where -->" in page, task
        where = tables.where_text(task)
        assert f"benchmarks/evidence/runs/{task}.parquet" in where, task
        assert f"bash scripts/evidence.sh --task {task}\n" in where, task
        assert (f"unpack {task} " in where) == bool(tables.run_names(task)), task
    assert "archive.py unpack easy grpo/seed_0 --out runs/easy_grpo_seed_0\n" in tables.where_text("easy")


def test_a_task_is_in_the_navigation_once_its_page_shows_a_run(evidence):
    plan, _ = evidence
    site = (ROOT / "mkdocs.yml").read_text()
    for task in plan.load_plan()["tasks"]:
        page = (ROOT / "docs" / "evidence" / f"{task}.md").read_text()
        is_empty = f"<!-- table {task} -->\nNo runs yet.\n" in page
        assert (f"  /evidence/{task}.md\n" in site) == is_empty, f"{task}: not_in_nav in mkdocs.yml"
        assert (f": evidence/{task}.md\n" in site) != is_empty, f"{task}: nav in mkdocs.yml"


def test_the_pages_and_the_learning_rates_are_what_the_stored_runs_give(evidence, monkeypatch):
    _, tables = evidence
    # Simulating a stored run takes seconds: this test does not, the one of a single run does, and CI does all
    # (scripts/evidence.sh --check).
    page = (ROOT / "docs" / "evidence" / "mixed.md").read_text()
    shown = page.split("<!-- table prediction -->\n")[1].split("<!-- end -->")[0]
    monkeypatch.setattr(tables, "prediction_table", lambda task: shown)
    monkeypatch.setattr(tables, "courses", lambda task: {})
    monkeypatch.setattr(sys, "argv", ["tables.py", "--check"])
    with pytest.raises(SystemExit) as ended:
        tables.main()
    assert ended.value.code == 0, ended.value.code


def test_the_runs_of_a_task_began_with_one_base_model(evidence):
    plan, tables = evidence
    contents = plan.load_plan()
    for task in contents["tasks"]:
        starts = {
            (tables.validations(run, task, "heldout")[0], tables.validations(run, task, "harder")[0])
            for arm, folders in tables.stored_runs(task, [*plan.all_arms(contents)]).items()
            if "after" not in contents["arms"].get(arm, {})
            for run in map(tables.read, folders)
        }
        assert len(starts) <= 1, (task, starts)
        # Also where an arm comes first that had a stage before.
        groups = ("arms", "credit", "published", "released")
        lines = tables.final_table(task, ["sft_rl", *(arm for group in groups for arm in contents[group])])
        if starts and len(lines.splitlines()) > 1:
            assert lines.splitlines()[2].split(" | ")[2:4] == [*map(tables.share, *starts)], task


def test_a_kept_base_model_is_the_one_whose_samples_are_stored(load_from, tmp_path):
    archive, base_models = load_from(EVIDENCE, "archive"), load_from(EVIDENCE, "base_models")
    tasks = load_from(EVIDENCE, "plan").load_plan()["tasks"]
    kept = {file.stem for file in base_models.FOLDER.iterdir()}
    assert kept <= {task["base_model"] for task in tasks.values()}
    for name in kept:
        base_models.unpack_model(name, tmp_path / name)
    for task, settings in tasks.items():
        if not archive.run_names(task):
            continue  # planned, and not run yet
        conditions = archive.read_scores(Path(task, "base"))["conditions"]
        assert conditions["name"] == settings["base_model"]
        if conditions["name"] in kept:
            weights = tmp_path / conditions["name"] / "model.safetensors"
            assert conditions["weights_sha256"] == {weights.name: file_sha256(weights)}


def test_an_unpacked_base_model_is_left_alone_and_another_folder_refused(load_from, tmp_path):
    base_models = load_from(EVIDENCE, "base_models")
    folder = tmp_path / "models" / "two_styles"
    base_models.unpack_model("two_styles", folder)
    before = (folder / "config.json").stat().st_mtime_ns
    base_models.unpack_model("two_styles", folder)
    assert (folder / "config.json").stat().st_mtime_ns == before
    (folder / "config.json").write_text("{}")
    with pytest.raises(DataError, match="move it away"):
        base_models.unpack_model("two_styles", folder)
    assert [path.name for path in folder.parent.iterdir()] == ["two_styles"]


@pytest.fixture
def archive(load_from, tmp_path, monkeypatch):
    """The archive module before anything is packed."""
    loaded = load_from(EVIDENCE, "archive")
    monkeypatch.setattr(loaded, "STORED", tmp_path / "packed")
    return loaded


def run_folder(path, *, seed, steps=3):
    """Write a run with metrics absent at first, a count, a metric that is not kept, and awkward floats."""
    (path / "eval").mkdir(parents=True)
    (path / "run_card.json").write_text(
        json.dumps({"seed": seed, "method": "grpo", "place": f"{Path.cwd()}/x"})
    )
    (path / "resolved.yaml").write_text(f"seele:\n  seed: {seed}\n")
    (path / "eval" / "scores.json").write_text('{"scores": []}')
    lines = [
        {"step": step, "tokens/generated_total": 100.0 * step, "reward/mean": 0.1 * seed, "actor/loss": 0.5}
        | ({"val/accuracy/chains/heldout": 1 / 3 + seed, "flops_total": 2.5e11 + step} if step else {})
        for step in range(steps)
    ]
    (path / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return lines


def test_a_packed_run_comes_back_exactly_but_for_metrics_that_nothing_reads(archive, tmp_path):
    lines = run_folder(tmp_path / "run", seed=1)
    archive.add("task", "grpo/seed_1", tmp_path / "run")
    archive.unpack(archive.read_task("task")["grpo/seed_1"], tmp_path / "back")
    for name in ("resolved.yaml", "eval/scores.json"):
        assert (tmp_path / "back" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()
    assert json.loads((tmp_path / "back" / "run_card.json").read_text())["place"] == "x"
    back = [json.loads(line) for line in (tmp_path / "back" / "metrics.jsonl").read_text().splitlines()]
    assert back == [{key: value for key, value in line.items() if key != "actor/loss"} for line in lines]
    read = archive.read(Path("task/grpo/seed_1"))
    assert (read.name, read.setting("seele.seed"), len(read.metrics)) == ("seed_1", 1, len(lines))


def test_the_same_runs_are_packed_to_the_same_bytes_in_any_order(archive, tmp_path):
    packed = set()
    for seed in (0, 1, 2):
        run_folder(tmp_path / str(seed), seed=seed, steps=seed + 1)
    for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0, 1)):
        archive.task_file("task").unlink(missing_ok=True)
        for seed in order:
            archive.add("task", f"grpo/seed_{seed}", tmp_path / str(seed))
        packed.add(archive.task_file("task").read_bytes())
        assert archive.run_names("task") == ["grpo/seed_0", "grpo/seed_1", "grpo/seed_2"]
    assert len(packed) == 1


def test_runs_that_finish_at_the_same_time_are_all_packed(archive, tmp_path):
    for seed in range(8):
        run_folder(tmp_path / str(seed), seed=seed)
    with ThreadPoolExecutor(8) as pool:
        [*pool.map(lambda seed: archive.add("task", f"grpo/seed_{seed}", tmp_path / str(seed)), range(8))]
    assert len(archive.run_names("task")) == 8


class Watched(dict):
    """One step's metrics, which record the names requested."""

    asked: ClassVar[set[str]] = set()

    def __contains__(self, key):
        self.asked.add(key)
        return super().__contains__(key)

    def __getitem__(self, key):
        self.asked.add(key)
        return super().__getitem__(key)

    def get(self, key, default=None):
        self.asked.add(key)
        return super().get(key, default)


def test_what_reports_and_comparisons_read_is_packed(load_from):
    archive, prediction = load_from(EVIDENCE, "archive"), load_from(EVIDENCE, "prediction")
    run = archive.read(Path("mixed/seele/seed_0"))
    watched = replace(run, metrics=tuple(map(Watched, run.metrics)))
    Watched.asked.clear()
    assert set(draw_figures(watched)) == {"accuracy", "rounds", "hints", "signal", "phases"}
    summarise(watched)
    prediction.measured(watched)
    assert all(cost.metric == "step" or archive.KEPT.fullmatch(cost.metric) for cost in COSTS.values())
    assert all(archive.KEPT.fullmatch(name) for name in (*PRACTICE, "milestones/false_alarms"))
    # The run was stored before runs counted packed tokens.
    absent = {name for name, cost in COSTS.items() if spent(watched.metrics, cost) is None}
    assert absent == {"tokens_trained_packed", "tokens_trained_informative"}
    assert {"hint_ratio/p10", "tokens/trained_total", "reward/mean"} <= Watched.asked
    # Requested in case the totals are missing.
    unpacked = {name for name in Watched.asked if not archive.KEPT.fullmatch(name)}
    assert unpacked == {"tokens/generated", "tokens/prefilled", "tokens/trained"}


def test_the_page_on_pretrained_models_is_what_the_stored_runs_give(load_from):
    for path, content in load_from(EVIDENCE, "pretrained").contents().items():
        assert path.read_bytes() == content, path


def test_packed_tokens_of_a_stored_run_follow_from_its_totals_or_are_not_known(load_from):
    archive, tables = load_from(EVIDENCE, "archive"), load_from(EVIDENCE, "tables")

    def counts(name, **totals):
        run = archive.read(Path("mixed", name, "seed_0"))
        if totals:
            lines = [{"step": 0.0}, {f"tokens/{key}_total": value for key, value in totals.items()}]
            run = replace(run, metrics=lines)
        return tables.packed_total(run), tables.informative_total(run)

    # 16 rollouts whose prompts have 160 tokens in total; 15 and a solution; hints in the prompt or response.
    assert counts("grpo", trained=660.0, generated=500.0) == (510, None)
    assert counts("luffy", trained=660.0, generated=400.0, teacher_forced=100.0) == (510, None)
    assert counts("uft", trained=660.0, generated=500.0, teacher_forced=80.0) == (510, None)
    assert counts("prefix_rft", trained=660.0, generated=450.0, teacher_forced=50.0) == (510, None)
    assert counts("grpo", trained=661.0, generated=500.0) == (None, None), "a group that was not whole"
    of_sft = archive.read(Path("mixed/sft/seed_0")).metrics[-1]["tokens/trained_total"]
    assert counts("sft") == (of_sft, of_sft)
    # Several hints per group, or groups that were left out.
    for arm in ("seele", "dapo", "grpo+lze"):
        assert counts(arm) == (None, None), arm
    assert counts("seele", trained_packed=300.0, trained_informative=200.0) == (300, 200)


def test_a_finished_run_is_packed_and_its_folder_removed(archive, load_from, tmp_path, monkeypatch):
    run = load_from(EVIDENCE, "run")
    monkeypatch.setattr(run, "WORK", tmp_path / "work")
    folder, job = (
        tmp_path / "work" / "mixed" / "grpo" / "seed_0",
        run.Job(name="mixed/grpo/seed_0", overrides=()),
    )
    run_folder(folder, seed=0)
    assert not run.is_stored(job)
    run.store(job.name)
    assert run.is_stored(job) and not folder.exists()


def test_an_unpacked_run_can_be_compared(tmp_path):
    for seed in (0, 1):
        out = str(tmp_path / f"seed_{seed}")
        command = [sys.executable, str(EVIDENCE / "archive.py"), "unpack", "arc_1d_20", f"grpo/seed_{seed}"]
        subprocess.run([*command, "--out", out], check=True, cwd=ROOT)
    costs = compare([tmp_path / "seed_0", tmp_path / "seed_1"]).results["arc_1d/heldout"]
    assert {"steps", "tokens_generated", "tokens_trained", "flops", "seconds"} <= set(costs)


def test_evidence_weighs_at_most_8_megabytes():
    listed = subprocess.run(
        ["git", "ls-files", "-z", str(EVIDENCE)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    weight = sum((ROOT / name).stat().st_size for name in listed.stdout.split("\0") if name)
    assert 0 < weight <= 8_000_000, f"{weight} bytes"


def test_the_first_mistake_of_a_solution(load_from):
    mistakes = load_from(EVIDENCE, "mistakes")
    problem = Instance(instance_id="p", data_source="chains", question="7 a+5 b-3 c+4", steps=(), answer="93")
    right = "7a+5=2\n2b-3=9\n9c+4=3\n\\boxed{93}"
    expected = {
        right: None,
        "7a+5b-3=9\n9c+4=3\n\\boxed{93}": None,
        right.replace("7a+5=2", "7a+5=3"): ("value", 0),
        right.replace("7a+5=2\n2b-3=9", "7a+5b-3=8"): ("value", 1),
        right.replace("b-3", "b+3"): ("misread", 1),
        right.replace("9c+4", "8c+4"): ("other", 2),
        right.replace("9c+4=3\n", ""): ("other", 2),
        right.replace("{93}", "{23}"): ("other", 3),
        right.replace("\\boxed", "3d+1=4\n\\boxed"): ("other", 3),
        "": ("other", 0),
    }
    assert {response: mistakes.first_mistake(problem, response) for response in expected} == expected
    counted = mistakes.count([problem] * len(expected), expected)
    assert (counted["solutions"], counted["right"]) == (10, 2)
    assert counted["reached"] == [10, 8, 6, 0]
    assert counted["value"] == [1, 1, 0, 0]
    assert counted["misread"] == [0, 1, 0, 0]
    assert counted["other"] == [1, 0, 2, 2]


def test_the_leaderboard_is_what_the_stored_runs_give_and_takes_a_run_of_ones_own(
    evidence, load_from, tmp_path, monkeypatch, capsys
):
    archive = load_from(EVIDENCE, "archive")
    leaderboard = load_from(EVIDENCE, "leaderboard")
    by_cost = leaderboard.compare_all(leaderboard.tasks_shown(), {})
    assert leaderboard.PAGE.read_text() == leaderboard.leaderboard(by_cost)
    for page, text in leaderboard.method_pages(by_cost).items():
        assert page.read_text() == text, page
        is_methods = page.stem not in ("README", "refused")
        assert ("\n## Our number\n\n<!-- table number -->\n" in text) == is_methods, page
    stored = archive.read_task("mixed")
    for seed in (0, 1):
        archive.unpack(stored[f"seele-n8/seed_{seed}"], tmp_path / f"mine_{seed}")
    for name, share_kept in (("mine_1", 0.95), ("short_0", 0.5)):
        archive.unpack(stored[f"seele-n8/seed_{name[-1]}"], tmp_path / name)
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines(keepends=True)
        (tmp_path / name / "metrics.jsonl").write_text("".join(lines[: int(share_kept * len(lines))]))
    archive.unpack(stored["seele-n8/seed_0"], tmp_path / "other_0")
    card = tmp_path / "other_0" / "run_card.json"
    card.write_text(json.dumps(json.loads(card.read_text()) | {"seed": 41}))
    page = tmp_path / "page.md"
    names = ("mine_0", "mine_1", "short_0", "other_0")
    added = [f"--add=mixed/{name[:-2]}={tmp_path}/{name}" for name in names]
    monkeypatch.setattr("sys.argv", ["leaderboard.py", f"--out={page}", *added])
    # All tasks are compared above.
    monkeypatch.setattr(leaderboard, "tasks_shown", lambda: ["mixed", "easy"])
    leaderboard.main()
    remarks = capsys.readouterr().err
    assert "mixed, equal tokens generated: short is not compared, because a run of it spent too" in remarks
    assert f"mixed, equal tokens generated: {tmp_path}/mine_1 ends first, so all arms are" in remarks
    assert "mixed: Fewer than 3 seeds, so no interval: mine (2), other (1)." in remarks
    said = "mixed, equal tokens generated: other has no seed in common with grpo, so there is no difference"
    assert said in remarks
    assert re.search(f"mixed: Not the same rollouts of a prompt: .*{tmp_path}/mine_0", remarks)
    assert "seele_paper" not in remarks
    mine, theirs, other = (
        next(line for line in page.read_text().splitlines() if line.startswith(f"| `{arm}`"))
        for arm in ("mine", "seele-n8", "other")
    )
    # Two of its five seeds, on one task: too few for a rank.
    assert re.findall(r"\| (\d+: )?\d+\.\d % \(\+\d+\.\d\) ", mine) == [""] and theirs.count("%") > 1
    assert re.findall(r"\| (\d+: )?\d+\.\d % \|", other) == [""]
    monkeypatch.setattr("sys.argv", ["leaderboard.py", "--add=mixd/mine=nowhere"])
    with pytest.raises(SystemExit):
        leaderboard.main()


def test_the_leaderboard_refuses_a_run_of_other_problems_or_another_base_model(
    load_from, tmp_path, monkeypatch
):
    archive, leaderboard = load_from(EVIDENCE, "archive"), load_from(EVIDENCE, "leaderboard")
    stored = {"mixed": {"grpo": [Path("mixed/grpo/seed_0")]}, "replication": {}}
    monkeypatch.setattr(leaderboard, "stored_runs", lambda task, arms: stored[task])
    archive.unpack(archive.read_task("mixed")["seele-n8/seed_0"], tmp_path)
    file = tmp_path / "resolved.yaml"
    settings, added = file.read_text(), {"mine": [tmp_path]}
    leaderboard.check_added("mixed", added)
    with pytest.raises(ConfigError, match="no stored run of grpo; choose another"):
        leaderboard.check_added("replication", added)
    for old, new, refusal in (
        ("evidence/mixed/heldout", "evidence/easy/heldout", r"expected all of .*mixed/heldout.*--prepare"),
        ("val_max_samples: -1", "val_max_samples: 9", r"val_max_samples=9; expected all of"),
        ("models/chains-", "models/other-", r"began with the model .*models/other-.* with two_styles;"),
    ):
        assert old in settings
        file.write_text(settings.replace(old, new))
        leaderboard.read_own.cache_clear()
        with pytest.raises(ConfigError, match=refusal):
            leaderboard.check_added("mixed", added)
    # A task that differs in arms and seeds has the same problems, and a path may be absolute.
    same = settings.replace("data/prepared/evidence/mixed/", "/my/data/prepared/evidence/replication/")
    file.write_text(same)
    leaderboard.read_own.cache_clear()
    leaderboard.check_added("mixed", added)


def test_the_leaderboard_takes_the_arms_that_another_task_lends_and_counts_them_there(
    evidence, load_from, monkeypatch
):
    plan, tables = evidence
    leaderboard = load_from(EVIDENCE, "leaderboard")
    tasks, cost = plan.load_plan()["tasks"], "tokens_generated"
    found = leaderboard.result("released", cost, {})
    rows = leaderboard.table({"released": found}).splitlines()
    lead = {row.split("`")[1]: row.split("|")[-2].strip() for row in rows if row.startswith("| `")}
    assert {"grpo", "uft-n8"} <= lead.keys()
    assert (lead["uft-n8"], lead["uft-n8-released"]) == ("", "1 of 1")
    # Without GRPO, and before a task has a run of its own, nothing is compared.
    alone = {key: value for key, value in tasks["released"].items() if key != "beside"}
    changed = {**plan.load_plan(), "tasks": {**tasks, "released": alone, "none": tasks["released"]}}
    for module in (leaderboard, tables):
        monkeypatch.setattr(module, "load_plan", lambda: changed)
    assert leaderboard.result("released", cost, {}) is None
    assert leaderboard.result("none", cost, {}) is None
