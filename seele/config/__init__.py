"""Settings: frozen dataclasses, built once from what Hydra composed."""

from seele.config.build import from_mapping
from seele.config.data import DataConfig
from seele.config.loss_term import LossTermConfig
from seele.config.memory import MemoryConfig
from seele.config.off_policy import OffPolicyConfig, ReplayConfig
from seele.config.run_wide import RunWide
from seele.config.settings import (
    AdvantageConfig,
    CurriculumConfig,
    HintConfig,
    ImitationConfig,
    PromptConfig,
    RewardConfig,
    SeeleConfig,
    SelectionConfig,
)
from seele.config.sft import SftConfig

__all__ = [
    "AdvantageConfig",
    "CurriculumConfig",
    "DataConfig",
    "HintConfig",
    "ImitationConfig",
    "LossTermConfig",
    "MemoryConfig",
    "OffPolicyConfig",
    "PromptConfig",
    "ReplayConfig",
    "RewardConfig",
    "RunWide",
    "SeeleConfig",
    "SelectionConfig",
    "SftConfig",
    "from_mapping",
]
