"""Settings: frozen dataclasses, built once from what Hydra composed."""

from seele.config.build import from_mapping
from seele.config.run import DataConfig, MemoryConfig, RunWide
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
from seele.config.training import LossTermConfig, OffPolicyConfig, ReplayConfig, SftConfig

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
