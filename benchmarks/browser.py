"""Measure the rollout browser on a large made-up run: every page, its index, its memory.

    python benchmarks/browser.py --steps 1000 --problems 256 --rollouts 32      # 12 GB of rollouts
    python benchmarks/browser.py --steps 10 --characters 4000 --tokens 1000     # as with seele.dump_tokens

A page's time is that of a request from this machine: the first one, and the median of five, because data
that was read stays in memory. Times are taken while the index is built, and again when it is complete. The
first paint is Chromium's own first contentful paint, from the address to the first text on the screen, in a
browser without a window and with nothing cached; it comes before the newest step's other requests.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from statistics import median

import psutil

from chromium import Tab, find_browser
from seele.data.storage.schema import write_problems
from seele.hints import build_controller
from seele.records import Instance, RoundOutcome

ROUNDS = 4
WORDS = "the of a so each in all 12 + 4 = 16 then costs hours apples left gives"


def write_run(run: Path, *, steps: int, problems: int, rollouts: int, characters: int, tokens: int) -> None:
    """Write a run whose rollouts are made-up texts; problems recur every tenth step.

    It has a checkpoint of its controller, which has seen all problems, and its training file.
    """
    draw = random.Random(0)
    texts = [" ".join(draw.choices(WORDS.split(), k=characters))[:characters] for _ in range(1000)]
    columns = [_token_columns(tokens, draw) for _ in range(100)] if tokens else [{}]
    (run / "rollouts").mkdir(parents=True)
    _write_parts(run, steps=steps, problems=10 * problems, rollouts=rollouts, texts=texts)
    with (run / "metrics.jsonl").open("w") as metrics:
        for step in range(1, steps + 1):
            row = {f"metric/{number}": draw.random() for number in range(120)}
            row |= {"step": step, "hint_ratio/mean": draw.random(), "val/accuracy/heldout": draw.random()}
            row |= {f"accuracy/round_{number}": draw.random() for number in range(ROUNDS)}
            metrics.write(json.dumps(row) + "\n")
            lines = [
                json.dumps(
                    _line(step, problem + problems * (step % 10), number, rollouts, texts, draw)
                    | draw.choice(columns)
                )
                for problem in range(problems)
                for number in range(rollouts)
            ]
            (run / "rollouts" / f"step_{step}.jsonl").write_text("\n".join(lines) + "\n")


def _write_parts(run: Path, *, steps: int, problems: int, rollouts: int, texts: list[str]) -> None:
    """Write the settings, the controller's state in a checkpoint of the last step, and the training file."""
    train = run.with_name("train.parquet")
    settings = {
        "seele": {"method": "seele", "hints": {"target_accuracy": 0.5, "controller": "bayes"}},
        "data": {"train_files": [str(train)]},
    }
    (run / "resolved.yaml").write_text(json.dumps(settings))
    names = [f"problem-{problem}" for problem in range(problems)]
    solution = tuple(f"{text[:100]}\n" for text in texts[:5])
    write_problems(
        train,
        [
            Instance(
                instance_id=name, data_source="made_up", question=texts[0][:250], steps=solution, answer="4"
            )
            for name in names
        ],
        split="train",
    )
    controller = build_controller("bayes", rounds=ROUNDS, rollouts_per_round=rollouts // ROUNDS)
    controller.observe_rounds([RoundOutcome(name, 0.5, number % 2, 1) for number, name in enumerate(names)])
    controller.end_visits(names)
    state = run / f"global_step_{steps}" / "seele" / "controller.json"
    state.parent.mkdir(parents=True)
    state.write_text(json.dumps(controller.state_dict()))


def _token_columns(tokens: int, draw: random.Random) -> dict[str, object]:
    """A line's last fields in a run with ``seele.dump_tokens``."""
    return {
        "tokens": [f"{word} " for word in draw.choices(WORDS.split(), k=tokens)],
        "token_advantages": [round(draw.gauss(0, 1), 4)] * tokens,
        "token_log_ratios": [round(draw.gauss(0, 0.01), 4) for _ in range(tokens)],
    }


def _line(
    step: int, problem: int, number: int, rollouts: int, texts: list[str], draw: random.Random
) -> dict[str, object]:
    right = draw.random() < 0.5
    round_index = number * ROUNDS // rollouts
    return {
        "step": step,
        "instance_id": f"problem-{problem}",
        "data_source": "made_up",
        "level": problem % 5 + 1,
        "question": f"Problem {problem}: {texts[problem % len(texts)][:250]}",
        "answer": "4",
        "hint_ratio": round_index / ROUNDS,
        "hint": texts[problem % 7][: 100 * round_index],
        "predicted_accuracy": 0.5,
        "round": round_index,
        "rollout": number % (rollouts // ROUNDS),
        "text": draw.choice(texts),
        "reward": float(right),
        "reason": "correct" if right else "wrong",
        "finish": "stop",
        "prompt_tokens": 90,
        "hint_tokens": 30 * round_index,
        "is_probe": False,
        "origin": "policy",
        "generated_tokens": draw.randrange(20, 400),
        "advantage": draw.gauss(0, 1),
    }


def seconds_of(address: str, repeats: int = 5) -> tuple[float, float]:
    """Return the first request's seconds, and the median of all."""
    seen = []
    for _ in range(repeats):
        began = time.perf_counter()
        _read(address)
        seen.append(time.perf_counter() - began)
    return seen[0], median(seen)


def _read(address: str) -> str:
    with urllib.request.urlopen(address) as answer:
        return str(answer.read().decode())


def first_paint(address: str) -> float:
    """Return the seconds until a new browser shows the page's first text; nan without Chromium."""
    browser = find_browser()
    if browser is None:
        return float("nan")
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        closing(Tab(browser, "about:blank", Path(folder))) as tab,
    ):
        tab.send("Page.navigate", url=address)
        paint = f"location.href == {json.dumps(address)} ? "
        paint += "performance.getEntriesByName('first-contentful-paint')[0]?.startTime : undefined"
        while (value := tab.value(paint)) is None:
            time.sleep(0.05)
    return float(value) / 1000


def _print_times(site: str, pages: Mapping[str, str], when: str) -> None:
    sys.stdout.write(f"{when}: newest step: first paint after {first_paint(f'{site}/'):.2f} s\n")
    for name, path in pages.items():
        first, middle = seconds_of(site + path)
        sys.stdout.write(f"{when}: {name}: first {first:.2f} s, then {middle:.2f} s\n")
        sys.stdout.flush()


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--problems", type=int, default=256)
    parser.add_argument("--rollouts", type=int, default=32, help="of a problem, in 4 rounds")
    parser.add_argument(
        "--characters", type=int, default=600, help="of a response; 4000 are about 1000 tokens"
    )
    parser.add_argument("--tokens", type=int, default=0, help="of a response that are kept; 0 for none")
    options = parser.parse_args()
    sizes = vars(options)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        write_run(run, **sizes)
        size = sum(file.stat().st_size for file in run.rglob("*") if file.is_file())
        sys.stdout.write(f"{sizes}, {size / 1e9:.1f} GB\n")
        began = time.perf_counter()
        command = [sys.executable, "-m", "seele.cli.main", "view", str(run), "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                _measure(server, run, options.steps, began)
            finally:
                server.terminate()


def _measure(server: subprocess.Popen[str], run: Path, steps: int, began: float) -> None:
    assert server.stdout is not None
    site = re.search(r"http://[^/]*", server.stdout.readline())[0]  # type: ignore[index]
    sys.stdout.write(f"ready after {time.perf_counter() - began:.1f} s\n")
    some = max(1, steps // 2)
    with (run / "rollouts" / f"step_{some}.jsonl").open() as lines:
        problem = json.loads(lines.readline())["instance_id"]
    pages = {
        "newest step": "/",
        "another step": f"/?step={some}",
        "its problem, open": f"/?step={some}&open={problem}",
        "its responses, searched": f"/?step={some}&text=apples+left+12",
        "a problem's history": f"/problem?id={problem}",
    }
    _print_times(site, pages, "while it is indexed")
    while f"{steps} of {steps} steps are indexed" not in _read(f"{site}/problem?id=problem-1"):
        time.sleep(1)
    sys.stdout.write(f"indexed after {time.perf_counter() - began:.0f} s\n")
    _print_times(site, pages, "indexed")
    index = sum(file.stat().st_size for file in (run / "logs").glob("view.sqlite*"))
    memory = psutil.Process(server.pid).memory_info().rss
    sys.stdout.write(f"index {index / 1e6:.0f} MB, memory {memory / 1e6:.0f} MB\n")


if __name__ == "__main__":
    main()
