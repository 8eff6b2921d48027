"""Compare one round with four, with a barrier, without and with a quorum, at equal rollouts and lengths.

    python benchmarks/rounds.py --out runs/benchmark     # after scripts/quickstart.sh: its model and data

The steps of one run cycle through the variants (``lengths.py``), which all generate the same lengths,
even or heavy-tailed, or four times as long. The times are of the generation phase, with a policy that does
not change.
"""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path

from lengths import LENGTHS, LONGEST, PROMPTS, ROLLOUTS, ROUNDS, VARIANTS, variant_of_step
from runs import OURS, spread, train
from seele.maths.tables import markdown_table

JOB = (
    "method=grpo",
    f"data.train_batch_size={PROMPTS}",
    f"seele.hints.rollouts_per_prompt={ROLLOUTS}",
    f"data.max_response_length={LONGEST}",
    "actor_rollout_ref.actor.ppo_mini_batch_size=32",
    "actor_rollout_ref.actor.optim.lr=1e-12",  # 0 is refused
    f"actor_rollout_ref.rollout.max_model_len={80 + LONGEST}",
    "actor_rollout_ref.rollout.agent.agent_loop_manager_class=benchmarks.forced_rounds.ForcedRoundsManager",
)


def main() -> None:
    """Print the tables, and save them to OUT/rounds.md."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark"))
    parser.add_argument("--turns", type=int, default=5, help="steps of each variant")
    options = parser.parse_args()
    if options.turns < 2:
        parser.error(f"--turns {options.turns}: at least 2, because the first step of all warms up")
    out = options.out.resolve()
    _, *lines = train(OURS, JOB, out / "rounds", steps=options.turns * len(VARIANTS))
    seconds: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for line in lines:
        turn, _ = divmod(int(line["step"]) - 1, len(VARIANTS))
        seconds[variant_of_step(int(line["step"]))][turn] = line["timing_s/gen"]
    rows = []
    for rounds in ROUNDS:
        known = [seconds.get((kind, rounds), {}) for kind in LENGTHS]
        rows.append([rounds, *(spread([*by_turn.values()]) if by_turn else "" for by_turn in known)])
    for name, first, second in (
        ("4 rounds / 1 round", "4 rounds", "1 round"),
        ("barrier / no barrier", "4 rounds, barrier", "4 rounds"),
        ("barrier / quorum 3/4", "4 rounds, barrier", "4 rounds, quorum 3/4"),
        ("barrier / quorum 1/2", "4 rounds, barrier", "4 rounds, quorum 1/2"),
    ):
        ratios = []
        for kind in ("even", "heavy-tailed"):
            a, b = seconds[kind, first], seconds[kind, second]
            # The warm-up took the first variant's first turn.
            ratios.append(spread([a[turn] / b[turn] for turn in a.keys() & b.keys()]))
        rows.append([name, *ratios, ""])
    report = markdown_table(["seconds of generation", *LENGTHS], rows)
    (out / "rounds.json").write_text(
        json.dumps({", ".join(variant): by_turn for variant, by_turn in seconds.items()}) + "\n"
    )
    (out / "rounds.md").write_text(report)
    sys.stdout.write(report)


if __name__ == "__main__":
    main()
