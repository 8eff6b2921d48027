"""MFC (arXiv:2609.13997): the user states a hint, which a ratchet shortens after each success.

Differs from ``grpo``: a number of steps is drawn below the ratchet of the problem and stated in the question;
the policy writes a whole solution.
"""

from seele.methods.method import Method

METHOD = Method(
    name="mfc", summary="hints in the question, shortened by a ratchet of each problem", controllers=("mfc",)
)
