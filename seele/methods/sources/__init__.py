"""Off-policy sources by name, one short file each (``seele.off_policy.source``)."""

from seele.config import OffPolicyConfig
from seele.errors import ConfigError
from seele.methods.sources.prefix import ExpertPrefixSource, PrefixSource
from seele.methods.sources.replay import ReplaySource, SuccessesSource
from seele.methods.sources.source import KEY, OffPolicySource
from seele.methods.sources.trace import TraceSource
from seele.plugins import blame, find_part, require_members

__all__ = ["SOURCES", "OffPolicySource", "build_source"]

SOURCES: dict[str, type[OffPolicySource]] = {
    "none": OffPolicySource,
    "trace": TraceSource,
    "prefix": PrefixSource,
    "expert_prefix": ExpertPrefixSource,
    "replay": ReplaySource,
    "successes": SuccessesSource,
}

MEMBERS = [name for name in dir(OffPolicySource) if not name.startswith("_")]
"""The members of a source."""


def build_source(settings: OffPolicyConfig) -> OffPolicySource:
    """Build the run's source.

    Raises:
        ConfigError: There is no such source, it cannot be built, or it lacks a member.
    """
    part = find_part(settings.source, key=KEY, group="sources", built_in=SOURCES)
    with blame(part, "building it", key=KEY, error=ConfigError):
        source: OffPolicySource = part(settings)
    require_members(source, MEMBERS, key=KEY)
    return source
