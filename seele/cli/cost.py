"""``seele cost``: predict what a training step costs on given GPUs, and warn if rounds cost too much."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seele.child import run_module
from seele.cli.outputs import writable_folder
from seele.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from seele.simulate.cost import StepCost
    from seele.simulate.cost_setup import Efficiency, Setup

WARN_ABOVE = 0.15
"""Share of the step that rounds may take before the command warns."""

PHASES = {
    "prefill_s": "prefill",
    "decode_s": "decode",
    "tail_s": "tail",
    "rounds_s": "added by rounds",
    "old_log_prob_s": "old log-probs",
    "reference_s": "reference",
    "update_s": "update",
    "weight_sync_s": "weight sync",
    "step_s": "**step, s**",
}
"""Field of ``StepCost`` -> heading of its column, in seconds."""

HEADS = (
    *("GPUs", "prompts", "an engine", "rounds", "cv"),
    *PHASES.values(),
    *("GPU-hours", "tokens/s", "waiting", "for rounds"),
)


# Run in another process, because ``seele`` must not import verl.
_MEASURER = "seele_verl.measured_cost"


def cost_command(
    context: typer.Context,
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...", help="With --measure: settings of the run, as for seele train."
        ),
    ] = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure", help="Train two steps here, in about two minutes, and print the second one's cost."
        ),
    ] = False,
    config_dir: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="With --measure: compositions of your own, as for seele train."),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            help="qwen2.5-{0.5b,1.5b,3b,7b,14b,32b,72b} and others, or a model=NAME of seele train."
        ),
    ] = "qwen2.5-7b",
    gpu: Annotated[str, typer.Option(help="a100, a100-40gb, h100 or h200.")] = "h100",
    gpus: Annotated[
        list[int] | None, typer.Option(help="Number of GPUs; repeat to compare. [default: 8]")
    ] = None,
    tensor_parallel: Annotated[int, typer.Option(help="GPUs per engine.")] = 1,
    prompts: Annotated[list[int] | None, typer.Option(help="Prompts per step. [default: 256]")] = None,
    weak: Annotated[
        bool, typer.Option("--weak", help="--prompts is for 8 GPUs and scales with the number of GPUs.")
    ] = False,
    rollouts: Annotated[int, typer.Option(help="Rollouts per prompt, over all its rounds.")] = 32,
    rounds: Annotated[list[int] | None, typer.Option(help="Rounds per prompt. [default: 4]")] = None,
    response_tokens: Annotated[float, typer.Option(help="Mean length of a response.")] = 1000.0,
    cv: Annotated[
        list[float] | None,
        typer.Option(help="Spread of response lengths: standard deviation over mean. [default: 1]"),
    ] = None,
    max_response_tokens: Annotated[int, typer.Option(help="Length at which a response is cut.")] = 2048,
    prompt_tokens: Annotated[float, typer.Option(help="Mean length of a prompt.")] = 200.0,
    hint_tokens: Annotated[float, typer.Option(help="Mean length of a hint.")] = 300.0,
    mini_batches: Annotated[int, typer.Option(help="Updates per step.")] = 4,
    ppo_epochs: Annotated[int, typer.Option(help="Passes over a step's rollouts in training.")] = 1,
    old_log_probs: Annotated[
        bool, typer.Option(help="The trainer's own pass for old log-probabilities.")
    ] = True,
    reference: Annotated[bool, typer.Option(help="The reference policy's pass, for the KL term.")] = True,
    barrier: Annotated[bool, typer.Option(help="All prompts wait for each other after every round.")] = False,
    quorum: Annotated[
        float, typer.Option(help="Share of a prompt's responses that its next round waits for.")
    ] = 1.0,
    prefix_cache: Annotated[
        bool, typer.Option(help="Later rounds find the prompt in the engine's cache.")
    ] = True,
    max_sequences: Annotated[int, typer.Option(help="Sequences per engine (verl's max_num_seqs).")] = 512,
    engine_memory_share: Annotated[float, typer.Option(help="verl's gpu_memory_utilization.")] = 0.7,
    assume: Annotated[
        list[str] | None,
        typer.Option(help="Set an efficiency, such as update_mfu=0.35; see docs/scaling.md."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the response lengths.")] = 0,
    memory: Annotated[
        bool, typer.Option("--memory", help="Also show the memory of each GPU and node (docs/memory.md).")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for cost.json and cost.md.", file_okay=False, callback=writable_folder),
    ] = None,
) -> None:
    """Predict the seconds of a training step by phase, one line per combination of repeated options.

    With --measure, measure a run on this machine: seele cost --measure recipe=smollm2_gsm8k hardware=cpu

    Raises:
        ConfigError: If a name is unknown or a number is not allowed.
    """
    of_run = [*(settings or []), *([] if config_dir is None else [f"--config-dir={config_dir}"])]
    if measure:
        sources = {name: context.get_parameter_source(name) for name in context.params}
        given = {
            name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"
        }
        if given - {"settings", "measure", "config_dir"}:
            raise ConfigError(
                "--measure: takes a run's settings (KEY=VALUE), --config-dir and no other option"
            )
        raise typer.Exit(run_module(_MEASURER, of_run))
    if of_run:
        raise ConfigError(f"{' '.join(of_run)}: settings of a run need --measure")
    from seele.data.storage.files import write_atomically
    from seele.maths.model_shapes import SHAPES, SHAPES_OF_PRESETS
    from seele.simulate.cost import step_cost
    from seele.simulate.cost_setup import GPUS, Cluster, Job, Setup

    model = SHAPES_OF_PRESETS.get(model, model)
    if model not in SHAPES:
        names = [*SHAPES, *SHAPES_OF_PRESETS]
        raise ConfigError(f"--model {model}{did_you_mean(model, names)}: expected one of {names}")
    if gpu not in GPUS:
        raise ConfigError(f"--gpu: expected one of {list(GPUS)}, got {gpu!r}")
    if seed < 0:
        raise ConfigError(f"--seed: expected 0 or more, got {seed}")
    if memory and as_json:
        raise ConfigError("--memory: only shown as a table; leave out --json")
    efficiency = _efficiency(assume or [])
    rows = []
    for num_gpus, num_prompts, num_rounds, spread in itertools.product(
        gpus or [8], prompts or [256], rounds or [4], cv or [1.0]
    ):
        try:
            cluster = Cluster(
                num_gpus=num_gpus,
                tensor_parallel=tensor_parallel,
                engine_memory_share=engine_memory_share,
                max_sequences=max_sequences,
            )
            job = Job(
                prompts=num_prompts * num_gpus // 8 if weak else num_prompts,
                rollouts=rollouts,
                rounds=num_rounds,
                prompt_tokens=prompt_tokens,
                hint_tokens=hint_tokens,
                response_tokens=response_tokens,
                cv=spread,
                max_response_tokens=max_response_tokens,
                mini_batches=mini_batches,
                ppo_epochs=ppo_epochs,
                has_old_log_probs=old_log_probs,
                has_reference=reference,
                has_barrier=barrier,
                quorum=quorum,
                has_prefix_cache=prefix_cache,
            )
            setup = Setup(model=SHAPES[model], gpu=GPUS[gpu], cluster=cluster, job=job, efficiency=efficiency)
        except ValueError as error:
            raise ConfigError(f"seele cost: {error}") from error
        rows.append((setup, step_cost(setup, seed=seed)))
    text, table = json.dumps([_to_json(*row) for row in rows], indent=1) + "\n", _markdown(rows)
    if out is not None:
        write_atomically(out / "cost.json", text)
        write_atomically(out / "cost.md", table)
    typer.echo(text if as_json else table, nl=False)
    if memory:
        for setup in {(row.cluster, row.job.prompts): row for row, _ in rows}.values():
            what = f"{setup.cluster.num_gpus:,} GPUs, {setup.job.prompts:,} prompts"
            typer.echo(f"\n{what}, memory by phase:\n\n{_memory(setup)}", nl=False)
    for setup, cost in rows:
        if cost.rounds_share > WARN_ABOVE:
            typer.echo(_warning(setup, cost), err=True)


def _memory(setup: "Setup") -> str:
    """Return a memory table for FSDP2 with fused kernels, nothing offloaded, and three checkpoints kept."""
    from seele.maths.memory import Engine, Passes, Plan, Trained, memory_table, predict

    cluster, job, shape = setup.cluster, setup.job, setup.model
    longest = round(job.prompt_tokens + job.hint_tokens) + job.max_response_tokens
    passes = Passes(tokens=max(cluster.micro_batch_tokens, longest), longest=longest, is_fused=True)
    plan = Plan(
        card=setup.gpu.memory,
        ranks=cluster.num_gpus,
        ranks_per_node=min(cluster.num_gpus, cluster.gpus_per_node),
        policy=Trained(shape=shape, shards=cluster.num_gpus),
        update=passes,
        old_log_probs=passes if job.has_old_log_probs else None,
        reference=passes if job.has_reference else None,
        engine=Engine(
            shape=shape,
            tensor_parallel=cluster.tensor_parallel,
            memory_share=cluster.engine_memory_share,
            window=longest,
            sequences=cluster.max_sequences,
            batched_tokens=8192,
        ),
        rollout_workers=min(cluster.num_gpus, cluster.gpus_per_node),
        rollouts=job.prompts * job.rollouts,
        checkpoints=4,
    )
    return memory_table(predict(plan))


def _efficiency(assumptions: Sequence[str]) -> "Efficiency":
    from seele.simulate.cost_setup import Efficiency

    names = sorted(field.name for field in fields(Efficiency))
    values = {}
    for item in assumptions:
        name, _, value = item.partition("=")
        if name not in names:
            raise ConfigError(f"--assume {item}: expected NAME=NUMBER with a name of {names}")
        try:
            values[name] = float(value)
        except ValueError as error:
            raise ConfigError(f"--assume {item}: expected a number, got {value!r}") from error
    try:
        return Efficiency(**values)
    except ValueError as error:
        raise ConfigError(f"--assume: {error}") from error


def _markdown(rows: "Sequence[tuple[Setup, StepCost]]") -> str:
    """Return a Markdown table of seconds by phase and their totals, one line per row."""
    from seele.maths.tables import markdown_table

    lines = []
    for setup, cost in rows:
        cluster, job = setup.cluster, setup.job
        cells = [f"{cluster.num_gpus:,}", f"{job.prompts:,}", f"{job.prompts / cluster.engines:g}"]
        cells += [f"{job.rounds}", f"{job.cv:g}", *(f"{getattr(cost, name):.1f}" for name in PHASES)]
        cells += [f"{cost.gpu_hours:.2f}", f"{cost.tokens_per_s:,.0f}"]
        cells += [f"{round(100.0 * share)} %" for share in (cost.waiting_share, cost.rounds_share)]
        lines.append(cells)
    return markdown_table(HEADS, lines, num_names=0)


def _warning(setup: "Setup", cost: "StepCost") -> str:
    """Return a warning: what rounds cost, and what to do."""
    job, engines = setup.job, setup.cluster.engines
    advice = "use fewer rounds, more prompts or larger engines"
    if job.prompts < engines:
        advice += f"; {engines - job.prompts} of {engines} engines have no prompt"
    return (
        f"warning: {setup.cluster.num_gpus} GPUs, {job.prompts} prompts, {job.rounds} rounds, cv {job.cv:g}: "
        f"{round(100.0 * cost.rounds_share)} % of the step goes to rounds; {advice}"
    )


def _to_json(setup: "Setup", cost: "StepCost") -> dict[str, Any]:
    derived = ("step_s", "gpu_hours", "tokens_per_s", "waiting_share", "rounds_share")
    return asdict(setup) | {"cost": asdict(cost) | {name: getattr(cost, name) for name in derived}}
