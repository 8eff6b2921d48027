"""No off-policy tokens: every method but those below."""

from seele.methods.sources.source import OffPolicySource


class NoSource(OffPolicySource):
    """The policy wrote every response token."""
