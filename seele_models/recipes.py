"""What a base model is made of: its text, its architecture and its training, as one frozen record."""

import dataclasses

from seele.data.tasks.chains import ChainsConfig, StudentConfig


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BaseModelRecipe:
    """What a base model is made of. Two equal recipes make the same model on the same kind of CPU; on another
    kind rounding differs, and training carries that far.
    """

    task: str
    """Key of ``TEXTS``."""

    chains: ChainsConfig = dataclasses.field(default_factory=ChainsConfig)
    student: StudentConfig = dataclasses.field(default_factory=StudentConfig)
    student_levels: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7)
    """Chains only: levels of the training text, the easiest first; none beyond the training levels."""
    student_batches: int = 550
    """Chains only: batches of text that the student writes; each text is seen once."""
    share_of_easy_batches: float = 0.3
    """Chains only: over this first share of the batches the levels open up one by one."""

    data_folder: str = ""
    """GSM8K: the folder that holds ``train.jsonl``; the Hugging Face hub when empty. Problems: the folder
    with ``train.parquet``."""
    max_chars: int = 400
    """GSM8K only: problems whose question and solution are longer are left out, as by ``seele data``."""
    min_steps: int = 1
    """GSM8K only: problems with fewer steps, the answer's among them, are left out. A model that has seen
    many short solutions states an answer after any two steps."""
    drills: int = 0
    """GSM8K only: texts of 30 calculations each, written as in the solutions, with other numbers."""

    epochs: int = 1
    batch_size: int = 32
    sampling: str = "sequential"
    """``sequential`` keeps the order of the texts; ``group_by_length`` shuffles them and pads little."""

    hidden_size: int = 128
    intermediate_size: int = 384
    num_layers: int = 2
    num_heads: int = 4
    max_positions: int = 512
    """Tokens; longer texts are left out."""
    initializer_range: float = 0.06
    """Standard deviation of the first weights. With Qwen's 0.02 so narrow a model stands still for long."""

    muon_learning_rate: float = 0.02
    adam_learning_rate: float = 3e-3
    warmup_steps: int = 20
    seed: int = 0


RECIPES = {
    # With 0.02 some seeds, or the same one on another CPU, are not done when the learning rate is.
    "chains": BaseModelRecipe(task="chains", muon_learning_rate=0.012),
    # It has met solutions that do two operations a step, and gets these mostly wrong.
    "two_styles": BaseModelRecipe(
        task="chains",
        chains=ChainsConfig(train_levels=(4, 5, 6, 7, 8, 9, 10), harder_levels=(11, 12), answer_values=3),
        student=StudentConfig(misconceived=0.5, skipping=0.3, returning=0.5),
        student_levels=(1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
        student_batches=900,
    ),
    "gsm8k": BaseModelRecipe(
        task="gsm8k",
        max_chars=500,
        min_steps=4,
        drills=1500,
        epochs=8,
        batch_size=16,
        sampling="group_by_length",
        hidden_size=192,
        intermediate_size=512,
        num_layers=3,
        num_heads=6,
        max_positions=1024,
    ),
    # Of any prepared file: a model that knows the form of the answers and little else.
    "problems": BaseModelRecipe(task="problems", epochs=40, sampling="group_by_length", max_positions=2048),
}
