"""Where a response ends: at the first stop string, whether or not the engine stopped there.

Which strings these are is in ``seele.rollout.templates``. The prompt is never looked at: its own
``Assistant:`` is no part of the response.
"""

from collections.abc import Sequence


def text_before_stop(text: str, stop: Sequence[str]) -> str:
    """The response's text up to the first stop string, without it; all of it where there is none.

    As vLLM ends it: a stop string counts wherever it stands, also at the very start.
    """
    ends = [at for each in stop if (at := text.find(each)) >= 0]
    return text[: min(ends, default=len(text))]
