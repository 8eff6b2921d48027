"""Settings: frozen dataclasses, built once from the configuration that Hydra composes."""

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
from seele.config.training import (
    CreditConfig,
    InterleaveConfig,
    LossTermConfig,
    OffPolicyConfig,
    ReplayConfig,
    SftConfig,
)

__all__ = [
    "AdvantageConfig",
    "CreditConfig",
    "CurriculumConfig",
    "DataConfig",
    "HintConfig",
    "ImitationConfig",
    "InterleaveConfig",
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
