"""All that a model card says, before it is text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seele.export.base_model import BaseModel, Licence
from seele.export.evaluation import Evaluation
from seele.export.progress import Progress
from seele.export.prompt import PromptForm
from seele.export.training_data import TrainingFile
from seele.report.run_folder import RunFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """All that a card says."""

    name: str
    """The model's name."""
    loads_as: str
    """What vLLM is told to load: a name on the hub, or the folder."""
    run: RunFolder
    progress: Progress
    base: BaseModel
    licence: Licence
    files: Sequence[TrainingFile]
    changed: Mapping[str, tuple[Any, Any]]
    """Value and default of the settings that are not the method's."""
    evaluations: Sequence[Evaluation]
    prompt: PromptForm
    dtype: str | None
    """As in ``render_snippet``."""

    @property
    def method(self) -> str:
        """``seele.method``."""
        return str(self.run.setting("seele.method"))
