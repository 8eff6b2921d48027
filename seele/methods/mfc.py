"""MFC (arXiv:2609.13997): the question states a hint, which a ratchet shortens after each success.

Differs from ``grpo``: a number of steps is drawn below the problem's ratchet, and these steps are stated in
the question; the policy writes a whole solution.
"""

from seele.methods.method import Method

METHOD = Method(
    name="mfc", summary="hints in the question, shortened by a ratchet per problem", controllers=("mfc",)
)
