"""The table of benchmarks, and problem files in our schema.

A benchmark states the source, number and reader of its rows, and how answers are drawn, extracted and judged.
Defaults follow SEELE (arXiv:2509.06923, section 5.1): 32 samples at temperature 0.6 for AIME24 and AMC23,
greedy decoding elsewhere. ``seele_eval.sources`` reads the rows; ``seele_eval.own_benchmarks`` finds the
benchmarks of users.
"""

from collections.abc import Callable
from dataclasses import dataclass

from seele.data.sources import OpenSplit
from seele.data.storage.hub import HubSource
from seele.data.tasks.gsm8k import HUB_NAME, HUB_REVISION
from seele.rollout.templates import QUESTION
from seele_eval.grading import (
    Extract,
    Judge,
    extract_boxed,
    extract_option,
    judge_all,
    judge_one,
    judge_option,
)
from seele_eval.rows import (
    RowReader,
    read_arc,
    read_gpqa,
    read_gsm8k,
    read_hmmt,
    read_math,
    read_mmlu_pro,
    read_olympiad,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One set of problems with the default conditions of its evaluation."""

    read: RowReader
    title: str = ""
    """Heading of the benchmark's column in tables."""
    rows: int | None = None
    """Number of problems in the whole set; a source with another number is refused. None: any number."""
    files: tuple[str, ...] = ()
    """Paths below the data folder; the first existing one is read."""
    hub: HubSource | None = None
    """Source of the rows if no data folder is given; None if the set exists only as a file."""
    open: Callable[[], OpenSplit] | None = None
    """Function that opens the rows, in place of ``files`` and ``hub``."""
    prompt: str = QUESTION
    """Text around the question and its options; the template wraps this text."""
    version: str = ""
    """Part of the problems' ids: samples of another version are not counted."""
    extract: Extract = extract_boxed
    judge: Judge = judge_one
    temperature: float = 0.0
    """Sampling temperature; 0 is greedy."""
    samples: int = 1
    """Completions per problem at a temperature above 0; greedy decoding draws one."""
    hub_rows: int | None = None
    """Number of problems in the hub's copy, if it differs."""
    may_be_published: bool = True
    """True if questions may appear in result files."""


BENCHMARKS: dict[str, Benchmark] = {
    "gsm8k": Benchmark(
        title="GSM8K",
        rows=1319,
        files=("gsm8k/test.jsonl",),
        hub=HubSource(HUB_NAME, "test", HUB_REVISION, "main"),
        read=read_gsm8k,
    ),
    "math500": Benchmark(
        title="MATH500",
        rows=500,
        files=("math500/test.jsonl",),
        hub=HubSource("HuggingFaceH4/MATH-500", "test", "6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be"),
        read=read_math,
    ),
    "minerva_math": Benchmark(
        title="Minerva",
        rows=272,
        files=("minerva_math/test.jsonl",),
        hub=HubSource("math-ai/minervamath", "test", "ee46ddc498933b1977577953250ca5c66be64f96"),
        read=read_math,
    ),
    # The harnesses of Qwen2.5-Math and SimpleRL ship 675 problems; the hub's copies lack one of them.
    "olympiadbench": Benchmark(
        title="Olympiad",
        rows=675,
        files=("olympiadbench/test.jsonl",),
        hub=HubSource("math-ai/olympiadbench", "test", "4faaf1e6ec17d11a4218a9bf4c049ecaf954dd84"),
        hub_rows=674,
        read=read_olympiad,
        judge=judge_all,
    ),
    "aime24": Benchmark(
        title="AIME24",
        rows=30,
        files=("aime24/test.jsonl",),
        hub=HubSource("HuggingFaceH4/aime_2024", "train", "2fe88a2f1091d5048c0f36abc874fb997b3dd99a"),
        read=read_math,
        temperature=0.6,
        samples=32,
    ),
    "aime25": Benchmark(
        title="AIME25",
        rows=30,
        files=("aime24/aime_2025.jsonl", "aime25/test.jsonl"),
        hub=HubSource("math-ai/aime25", "test", "563bb8404243c5f09de6ec262f2db674fe5bce9b"),
        read=read_math,
        temperature=0.6,
        samples=32,
    ),
    # MathArena's rows (arXiv:2505.23281). HMMT's golds are LaTeX, and a few hold several answers.
    "aime26": Benchmark(
        title="AIME26",
        rows=30,
        files=("aime26/test.jsonl", "aime26/train-00000-of-00001.parquet"),
        hub=HubSource("MathArena/aime_2026", "train", "d2de22f3c656b4f56cf8981212186377d1e23bc3"),
        read=read_math,
        temperature=0.6,
        samples=32,
    ),
    "hmmt25": Benchmark(
        title="HMMT25 (February)",
        rows=30,
        files=("hmmt25/test.jsonl", "hmmt25/train-00000-of-00001.parquet"),
        hub=HubSource("MathArena/hmmt_feb_2025", "train", "6fdc4277120810ff75aa22d2d5489b91f7a262a1"),
        read=read_hmmt,
        judge=judge_all,
        temperature=0.6,
        samples=32,
    ),
    "amc23": Benchmark(
        title="AMC23",
        rows=40,
        files=("amc23/test.jsonl",),
        hub=HubSource("math-ai/amc23", "test", "80815d37005feb82cd7f8fbc6901d5d3eff43057"),
        read=read_math,
        temperature=0.6,
        samples=32,
    ),
    # AMC 12 of 2022 and 2023: another set than AMC23, which some papers call AMC.
    "amc83": Benchmark(
        title="AMC (83)",
        rows=83,
        files=("amc23/amc_83.json",),
        hub=HubSource("AI-MO/aimo-validation-amc", "train", "69d78a4a2c840e82d69af6bc742bda09005f6316"),
        read=read_math,
        temperature=0.6,
        samples=32,
    ),
    "arc_c": Benchmark(
        title="ARC-C",
        rows=1172,
        files=("arc_c/valid.arc_c.parquet",),
        hub=HubSource("allenai/ai2_arc", "test", "210d026faf9955653af8916fad021475a3f00453", "ARC-Challenge"),
        read=read_arc,
        extract=extract_option,
        judge=judge_option,
    ),
    # Gated: its authors ask that questions not be published.
    "gpqa_diamond": Benchmark(
        title="GPQA-D",
        rows=198,
        files=("gpqa_diamond/gpqa_diamond.csv",),
        hub=HubSource("Idavidrein/gpqa", "train", "633f5ee89ab8ad4522a9f850766b73f62147ffdd", "gpqa_diamond"),
        read=read_gpqa,
        extract=extract_option,
        judge=judge_option,
        may_be_published=False,
    ),
    "mmlu_pro": Benchmark(
        title="MMLU-Pro",
        rows=12032,
        files=("mmlu_pro/test.jsonl", "mmlu_pro/test-00000-of-00001.parquet"),
        hub=HubSource("TIGER-Lab/MMLU-Pro", "test", "b189ec765aa7ed75c8acfea42df31fdae71f97be"),
        read=read_mmlu_pro,
        extract=extract_option,
        judge=judge_option,
    ),
    "mmlu_pro_300": Benchmark(
        title="MMLU-Pro (300)",
        rows=300,
        files=("mmlu_pro/sample_300.jsonl",),
        hub=None,
        read=read_mmlu_pro,
        extract=extract_option,
        judge=judge_option,
    ),
}
"""Benchmark by name."""

MATH = ("gsm8k", "math500", "minerva_math", "olympiadbench", "aime24", "amc23")
GENERAL = ("arc_c", "gpqa_diamond", "mmlu_pro")
LUFFY = ("aime24", "aime25", "amc83", "math500", "minerva_math", "olympiadbench")
"""The six benchmarks of LUFFY's main table (arXiv:2504.14945), in its order."""
GROUPS = {"math": MATH, "general": GENERAL, "all": (*MATH, *GENERAL), "luffy": LUFFY}
"""Names that stand for several benchmarks; the tables of the SEELE README average over the first two."""
