"""The terms that a run adds to the surrogate: SEELE's own, then the user's (``seele.loss_terms``)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from seele.config import LossTermConfig, SeeleConfig
from seele.errors import ConfigError
from seele.losses.expert_prefix import ExpertPrefixTerm
from seele.losses.imitation import ImitationTerm
from seele.losses.off_policy import OffPolicyTerm
from seele.losses.term import Axis, LossTerm
from seele.methods.sources import build_source
from seele.plugins import blame, find_part, require_members, where

MEMBERS = [name for name in dir(LossTerm) if not name.startswith("_")]
"""The members of a term."""


@dataclass(frozen=True, slots=True)
class WeighedTerm:
    """A term of a run."""

    term: LossTerm
    coefficient: float
    key: str
    """The setting that names the term."""
    is_users: bool = False


class LossTerms:
    """All terms of a run. When pickled to another process, they are rebuilt there from the settings."""

    def __init__(self, settings: SeeleConfig) -> None:
        """Build the terms.

        Raises:
            ConfigError: There is no such term, it cannot be built, two share a name, or a term names columns
                that it does not write or count.
        """
        self._settings = settings
        self._terms = [*_own(settings), *map(_users, range(len(settings.loss_terms)), settings.loss_terms)]
        self._check_names()

    def __reduce__(self) -> tuple[Any, ...]:
        return LossTerms, (self._settings,)

    def __iter__(self) -> Iterator[WeighedTerm]:
        return iter(self._terms)

    @property
    def change_the_loss(self) -> bool:
        """True if the run's loss differs from the surrogate with KL and entropy."""
        return any(each.has_loss or each.unclips or each.takes_over for each in (one.term for one in self))

    @property
    def columns(self) -> list[str]:
        """The columns of all terms."""
        return [name for each in self for name in each.term.columns]

    @property
    def has_users(self) -> bool:
        """True if a term is the user's, whose faults are reported with the problems."""
        return any(each.is_users for each in self)

    def _check_names(self) -> None:
        seen: set[str] = set()
        for each in self:
            for name in (each.term.name, *each.term.columns):
                if name in seen or not name:
                    raise ConfigError(
                        f"{each.key}: {type(each.term).__name__} has the name {name!r} for itself or a "
                        "column, which is empty or taken by another term; choose another"
                    )
                seen.add(name)
            if each.is_users and (why := why_not_a_metric(each.term.name)):
                raise ConfigError(f"{each.key}: {where(each.term)}: {why}")


def why_not_a_metric(name: str) -> str:
    """Return why verl would not log a loss term's metric, or not its mean over mini-batches; empty if it
    would.
    """
    if name in _VERLS:
        return f"the name {name!r} is taken by a metric of verl's; choose another name"
    if "min" not in name and "max" not in name:
        return ""
    return (
        f"the name {name!r} has min or max in it, so verl would log the metric's minimum or maximum over "
        "mini-batches; choose another name"
    )


_VERLS = frozenset(
    {
        *("entropy", "entropy_loss", "grad_norm", "kl_coef", "kl_loss", "loss", "lr", "mfu"),
        *("pg_clipfrac", "pg_clipfrac_lower", "pg_loss", "ppo_kl"),
    }
)
"""Metrics of verl's update, logged as ``actor/NAME`` like those of loss terms."""


def _check_columns(term: LossTerm, key: str) -> None:
    """Raise ``ConfigError`` if the user's term names columns that it does not write or count."""
    of_responses = [name for name, axis in term.columns.items() if axis == Axis.RESPONSE]
    for attribute, names, what, allowed in (
        ("counted", term.counted, "columns", list(term.columns)),
        ("takes_over", [term.takes_over], "columns over responses", of_responses),
        ("unclips", [term.unclips], "counted columns", list(term.counted)),
    ):
        if unknown := [name for name in names if name not in (None, *allowed)]:
            raise ConfigError(
                f"{key}: {where(term)}: {attribute} names {unknown[0]!r}, which is not one of the term's "
                f"{what}, {allowed}"
            )


def _own(settings: SeeleConfig) -> Iterator[WeighedTerm]:
    imitation, off_policy = settings.imitation, settings.off_policy
    if imitation.coefficient:
        yield WeighedTerm(ImitationTerm(imitation), imitation.coefficient, "seele.imitation")
    source = build_source(off_policy)
    if source.marks_tokens:
        form = ExpertPrefixTerm if off_policy.loss == "trust_region" else OffPolicyTerm
        term = form(off_policy, has_rows=source.adds_rollouts, has_loss=source.has_own_loss)
        yield WeighedTerm(term, off_policy.coefficient, "seele.off_policy")


def _users(index: int, config: LossTermConfig) -> WeighedTerm:
    key = f"seele.loss_terms[{index}]"
    part = find_part(config.term, key=f"{key}.term", group="losses", built_in={})
    with blame(part, "building it", key=key, error=ConfigError):
        term = part(**config.settings)
    require_members(term, MEMBERS, key=key)
    _check_columns(term, key)
    return WeighedTerm(term, config.coefficient, key, is_users=True)
