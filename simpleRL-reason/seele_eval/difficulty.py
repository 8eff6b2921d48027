"""Count how often a model solves each problem: ``python -m seele_eval.difficulty FILE --out DIR ...``.

The file is evaluated with the paper's settings (arXiv:2509.06923, section 5.1: eight samples at 0.6, at most
2,048 tokens), and ``counts.jsonl`` holds the counts for ``seele data filter``. The command takes the
options of ``seele_eval.run``, resumes after a kill, and runs on all GPUs or against a server.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seele.data.difficulty import COUNTS, SAMPLES, Count, problem_key, write_counts
from seele.data.storage.schema import read_problems
from seele.errors import ConfigError
from seele.records import Finish, GradeReason
from seele.reward.graders import GRADERS
from seele_eval.arguments import Arguments, check_greedy, new_parser, to_arguments
from seele_eval.command import exit_quietly, run_command
from seele_eval.grading import BOX
from seele_eval.predictions import read_predictions
from seele_eval.prompts import Complete
from seele_eval.run import evaluate

# Constant, because a sample's seed and key depend on it.
TASK = "problems"

TEMPERATURE = 0.6


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Exit status: 0, or 2 for an error that the user can fix."""
    return run_command(lambda: sample(*parse(argv)))


def parse(argv: Sequence[str] | None) -> tuple[Path, Arguments]:
    """Parse the file's path and the arguments of its evaluation.

    Raises:
        ConfigError: If ``--problems`` names other problems.
    """
    parser = new_parser(
        "seele_eval.difficulty",
        "Count how often a model solves each problem of a file, by default in "
        f"{SAMPLES} samples at temperature {TEMPERATURE}.",
    )
    parser.usage = "%(prog)s FILE [options]"
    parser.add_argument("file", type=Path, help="parquet in our schema")
    # As in training, only boxed answers count, whatever the template.
    parser.set_defaults(samples=SAMPLES, temperature=[TEMPERATURE], answers=BOX)
    values = vars(parser.parse_args(argv))
    file = values.pop("file")
    if values["problems"]:
        raise ConfigError(f"--problems: the problems are those of {file}; omit it")
    return file, to_arguments(parser, values | {"problems": [(TASK, file)]})


def sample(file: Path, arguments: Arguments, *, complete: Complete | None = None) -> str:
    """Draw and grade the missing samples, write the counts, and return a sentence with their path.

    Args:
        file: The problems.
        arguments: Arguments of the evaluation; ``out`` is the folder of samples.
        complete: Function that completes requests; chosen from the arguments if not given.

    Raises:
        SeeleError: For anything that the user can fix.
    """
    samples, out = arguments.samples or 1, arguments.out
    if len(arguments.temperature) > 1:
        raise ConfigError(
            f"--temperature: expected one value, got {list(arguments.temperature)}; omit others"
        )
    [temperature] = arguments.temperature
    if out is None or arguments.benchmarks or arguments.run or arguments.limit:
        raise ConfigError(
            "sampling for a filter needs --out and the whole file; omit --benchmarks, --run and --limit"
        )
    check_greedy(temperature, samples)
    evaluate(arguments, complete=complete)
    drawn = read_predictions(out)
    correct: Counter[str] = Counter()
    truncated: Counter[str] = Counter()
    no_answer: Counter[str] = Counter()
    for prediction in drawn.predictions:
        # The folder may hold earlier samples: more per problem, other temperatures, another file's problems.
        if (prediction.benchmark, prediction.temperature) == (
            TASK,
            temperature,
        ) and prediction.sample < samples:
            correct[prediction.instance_id] += prediction.correct
            truncated[prediction.instance_id] += prediction.finish is Finish.LENGTH
            no_answer[prediction.instance_id] += prediction.reason is GradeReason.NO_ANSWER
    conditions: dict[str, Any] = {**drawn.conditions, "temperature": temperature}
    counts = [
        Count(
            problem=problem_key(instance.question, instance.answer),
            instance_id=instance.instance_id,
            correct=correct[instance.instance_id],
            truncated=truncated[instance.instance_id],
            no_answer=no_answer[instance.instance_id] if conditions["grader"] in GRADERS else None,
        )
        for instance in read_problems(file)
    ]
    write_counts(out / COUNTS, counts, samples=samples, conditions=conditions)
    return f"{out / COUNTS}: {samples} samples of each of {len(counts)} problems\n"


if __name__ == "__main__":
    exit_quietly(main())
