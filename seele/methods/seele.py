"""SEELE: a hint per problem, its length chosen round by round so that half of the rollouts succeed.

Composes: rounds with a hint controller; advantages pooled over a problem's rounds, without standard
deviation (Dr. GRPO); the clipped surrogate on generated tokens only; an imitation term on hint tokens, which
vanishes for hints of more than a few tokens; KL to the initial policy. ``seele_paper`` is the same with the
paper's controller (arXiv:2509.06923).
"""

from seele.methods.method import Method

METHOD = Method(
    name="seele", summary="hints whose length a controller chooses per problem and round", controllers=()
)
