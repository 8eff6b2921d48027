"""Off-policy sources by name, one short file each (``seele.off_policy.source``)."""

from seele.config import OffPolicyConfig
from seele.errors import ConfigError
from seele.methods.sources.prefix import ExpertPrefixSource, PrefixSource
from seele.methods.sources.replay import ReplaySource, SuccessesSource
from seele.methods.sources.source import KEY, OffPolicySource
from seele.methods.sources.trace import TraceSource
from seele.plugins import blame, find_part, require_members, where
from seele.records import Completion, Instance
from seele.rollout.solutions import EncodedProblem
from seele.rollout.templates import Tokenizer

__all__ = ["SOURCES", "OffPolicySource", "build_source", "given_responses"]

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
        ConfigError: There is no such source, it cannot be built, it lacks a member, or it claims to know the
            log-probabilities of hints.
    """
    part = find_part(settings.source, key=KEY, group="sources", built_in=SOURCES)
    with blame(part, "building it", key=KEY, error=ConfigError):
        source: OffPolicySource = part(settings)
    require_members(source, MEMBERS, key=KEY)
    if source.in_response and source.has_log_probs:
        raise ConfigError(
            f"{KEY}: {where(part)}: in_response needs has_log_probs = False, because the probabilities of "
            "hint tokens under their author are unknown"
        )
    return source


def given_responses(
    source: OffPolicySource,
    instance: Instance,
    encoded: EncodedProblem,
    tokenizer: Tokenizer,
    *,
    replayed: Completion | None = None,
    at_most: int,
) -> list[Completion]:
    """Return the responses that a source gives to a group (``OffPolicySource.given``).

    Raises:
        PluginError: The source raised, or what it returned are not ``at_most`` responses.
    """
    with blame(source, f"given, problem {instance.instance_id!r}", key=KEY):
        given = source.given(instance, encoded, tokenizer, replayed=replayed)
        if given and not source.adds_rollouts:
            raise ValueError(f"got {len(given)} responses, but adds_rollouts is not true")
        if len(given) > at_most:
            raise ValueError(f"got {len(given)} responses, at most {at_most} allowed: one must be generated")
        for each in given:
            if not 0 < len(each.token_ids) == len(each.log_probs):
                raise ValueError(
                    f"got {len(each.token_ids)} tokens with {len(each.log_probs)} log-probabilities; a "
                    "response needs at least one token, and as many log-probabilities, zeros if it has none"
                )
    return given
