"""Which problems a step trains on."""

from seele.curriculum.uniform import UniformCurriculum

__all__ = ["UniformCurriculum"]
