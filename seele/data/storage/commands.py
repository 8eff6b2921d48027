"""Which commands make a file of problems that is not there."""

from pathlib import Path

# Files that take more than `seele data prepare NAME --out FOLDER`; {folder} is where they were looked for.
_SEVERAL_COMMANDS = {
    ("deepmath", "annotated.parquet"): (
        "seele data prepare deepmath --out {folder}",
        "seele data filter {folder}/train.parquet --out {folder}/hard.parquet --model Qwen/Qwen2.5-7B "
        "--band 0:0",
        "seele data annotate {folder}/hard.parquet --out {folder}/annotated.parquet --endpoint URL "
        "--model NAME",
    ),
    ("openr1_48k_complement", "train.parquet"): (
        "seele data prepare hf://Elliott/Openr1-Math-48k-Complement --out {folder} "
        "--map question=prompt[-1].content --map answer=reward_model.ground_truth --grader math_verify",
    ),
}
_OPTIONS = {"openr1_46k": " --set heldout_share=0.01 --grader math_verify"}
"""LUFFY's problems have one split; without some of it held out there is nothing to validate on. Its runs
grade with Math-Verify, so golds are checked with it.
"""


def how_to_make(path: Path) -> str:
    """The end of a message on a file of problems that is not there."""
    commands = commands_that_make(path) or ("seele data prepare",)
    return "make it with " + ", then ".join(f"`{command}`" for command in commands)


def commands_that_make(path: Path) -> tuple[str, ...]:
    """Commands to run one after the other, or none where the file's name tells no source.

    Args:
        path: Where the problems were looked for, such as ``data/prepared/countdown/train.parquet``: the
            folder has the name of a source.
    """
    # Here, because sources import the schema, and that this file.
    from seele.data.sources.settings import GENERATED, source_names

    name, folder = path.parent.name, path.parent.as_posix()
    if several := _SEVERAL_COMMANDS.get((name, path.name)):
        return tuple(command.format(folder=folder) for command in several)
    if name not in (*source_names(), *GENERATED):
        return ()
    return (f"seele data prepare {name} --out {folder}{_OPTIONS.get(name, '')}",)
