"""Time the reference job, 32 problems x 32 rollouts of the quickstart's model, by plain verl and us in turn.

    python benchmarks/reference.py --out runs/benchmark     # after scripts/quickstart.sh: its model and data

Each repetition runs every variant once, so that a busy minute of the machine does not hit only one of them,
and gives one ratio of medians over steps. ``engine`` is vLLM alone, in its own process, on our requests.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from runs import OURS, PLAIN, ROOT, Line, median, spread, train
from seele.maths.tables import markdown_table

PROMPTS, ROLLOUTS = 32, 32

JOB = (
    "method=grpo",
    f"data.train_batch_size={PROMPTS}",
    f"seele.hints.rollouts_per_prompt={ROLLOUTS}",
    "actor_rollout_ref.actor.ppo_mini_batch_size=8",
)

VERLS_STEP = (
    "algorithm.rollout_correction.bypass_mode=false",
    "seele.packed_updates=false",
    "ray_kwargs.ray_init.runtime_env.env_vars.VERL_USE_EXTERNAL_MODULES=seele_verl.cpu.plugin",
)

VARIANTS = {
    "verl": (PLAIN, JOB),
    "verl, our settings": (PLAIN, (*JOB, "+plain.our_settings=true")),
    "ours": (OURS, JOB),
    "ours, verl's step": (OURS, (*JOB, *VERLS_STEP)),
    "ours, 4 rounds": (OURS, (*JOB, "seele.hints.rounds=4")),
    "SEELE, 4 rounds": (OURS, ("method=seele", *JOB[1:])),
}

PHASES = ("step", "gen", "old_log_prob", "ref", "adv", "update_actor", "update_weights")

LOSSES = ("actor/pg_loss", "actor/kl_loss", "actor/grad_norm", "critic/rewards/mean")


def rollout_speed(line: Line) -> float:
    """Generated tokens per second in the generation phase, which includes grading and handing over."""
    return line["response_length/mean"] * PROMPTS * ROLLOUTS / line["timing_s/gen"]


def engine_speed(out: Path, *, steps: int) -> dict[str, float]:
    """Tokens per second of vLLM alone, by kind of request."""
    command = [sys.executable, "benchmarks/engine.py", "--steps", str(steps)]
    result = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=(out / "engine.err").open("w"), check=True
    )
    speeds: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return speeds


def phases(lines: dict[str, list[list[Line]]]) -> str:
    """Seconds by phase, memory and the controller's share: medians over steps and repetitions."""
    names = list(lines)
    flat = {name: [line for run in runs for line in run] for name, runs in lines.items()}
    rows = [
        [
            f"{phase}, s",
            *(
                f"{median(flat[name], f'timing_s/{phase}'):.2f}"
                if f"timing_s/{phase}" in flat[name][0]
                else ""
                for name in names
            ),
        ]
        for phase in PHASES
    ]
    rows += [
        [
            "generated tokens a second",
            *(f"{statistics.median(map(rollout_speed, flat[name])):.0f}" for name in names),
        ],
        ["tokens of a response", *(f"{median(flat[name], 'response_length/mean'):.1f}" for name in names)],
        ["mean reward", *(f"{median(flat[name], 'critic/rewards/mean'):.3f}" for name in names)],
        [
            "peak memory, GiB",
            *(f"{max(line['memory/peak_gib'] for line in flat[name]):.2f}" for name in names),
        ],
        ["controller's proposals, share of the step", *(controller_share(flat[name]) for name in names)],
    ]
    return markdown_table(["median over steps", *names], rows)


def controller_share(lines: list[Line]) -> str:
    """Total time of proposals, one after another, as a share of the step."""
    if "controller/ms_per_proposal" not in lines[0]:
        return ""
    rounds = sum(name.startswith("accuracy/round_") for name in lines[0])
    seconds = median(lines, "controller/ms_per_proposal") / 1000.0 * PROMPTS * rounds
    return f"{100.0 * seconds / median(lines, 'timing_s/step'):.2f} %"


def ratios(lines: dict[str, list[list[Line]]], engines: list[dict[str, float]]) -> str:
    """Each repetition's ratios of medians, and their spread."""

    def ratio(first: str, second: str, key: str) -> list[float]:
        return [median(a, key) / median(b, key) for a, b in zip(lines[first], lines[second], strict=True)]

    def speed(name: str) -> list[float]:
        return [statistics.median(map(rollout_speed, run)) for run in lines[name]]

    rows = []
    if {"verl", "ours"} <= lines.keys():
        pairs = list(zip(speed("ours"), speed("verl"), strict=True))
        rows.append(["rollout throughput, ours / verl", spread([ours / verl for ours, verl in pairs])])
        rows.append(["step, ours / verl", spread(ratio("ours", "verl", "timing_s/step"), 3)])
        rows.append(["peak memory, ours / verl", spread(ratio("ours", "verl", "memory/peak_gib"))])
    if {"verl, our settings", "ours"} <= lines.keys():
        pairs = list(zip(speed("ours"), speed("verl, our settings"), strict=True))
        rows.append(["rollout throughput, ours / verl with our settings", spread([a / b for a, b in pairs])])
        rows.append(
            [
                "step, ours / verl with our settings",
                spread(ratio("ours", "verl, our settings", "timing_s/step"), 3),
            ]
        )
    for kind in engines[0] if engines and "ours" in lines else ():
        pairs = list(zip(speed("ours"), (engine[kind] for engine in engines), strict=True))
        rows.append([f"rollout throughput, ours / engine alone, {kind}", spread([a / b for a, b in pairs])])
    if {"ours", "ours, 4 rounds"} <= lines.keys():
        rows.append(
            ["step, 4 rounds / 1 round, no hints", spread(ratio("ours, 4 rounds", "ours", "timing_s/step"))]
        )
        rows.append(
            [
                "generation, 4 rounds / 1 round, no hints",
                spread(ratio("ours, 4 rounds", "ours", "timing_s/gen")),
            ]
        )
    return markdown_table(["ratio", "median (smallest to largest) over repetitions"], rows)


def losses(first_steps: dict[str, Line]) -> str:
    """Compare the first step by our code and by verl's: the same weights, the same rollouts."""
    rows = []
    for key in LOSSES:
        ours, verls = (first_steps[name][key] for name in ("ours", "ours, verl's step"))
        rows.append([key, f"{ours:.6f}", f"{verls:.6f}", f"{abs(ours - verls):.1e}"])
    return markdown_table(["first step", "our step", "verl's step", "difference"], rows)


def main() -> None:
    """Print the tables, and save them to OUT/reference.md."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark"))
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=["verl", "ours", "ours, 4 rounds"])
    parser.add_argument("--engine", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    lines: dict[str, list[list[Line]]] = defaultdict(list)
    first_steps: dict[str, Line] = {}
    engines: list[dict[str, float]] = []
    for repetition in range(options.repetitions):
        for variant in options.variants:
            folder = out / f"{variant.replace(', ', '-').replace(' ', '-').replace(chr(39), '')}-{repetition}"
            program, overrides = VARIANTS[variant]
            warm_up, *measured = train(program, overrides, folder, steps=options.steps)
            first_steps[variant] = warm_up
            lines[variant].append(measured)
        if options.engine:
            engines.append(engine_speed(out, steps=options.steps))
    report = [ratios(lines, engines), phases(lines)]
    if engines:
        report.append(
            markdown_table(
                ["engine alone", "tokens a second"],
                [[kind, spread([engine[kind] for engine in engines], 0)] for kind in engines[0]],
            )
        )
    if {"ours", "ours, verl's step"} <= lines.keys():
        report.append(losses(first_steps))
    (out / "reference.json").write_text(json.dumps({"lines": lines, "engines": engines}) + "\n")
    (out / "reference.md").write_text("\n".join(report))
    sys.stdout.write("\n".join(report))


if __name__ == "__main__":
    main()
