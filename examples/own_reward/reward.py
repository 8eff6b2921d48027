"""Partial credit: a wrong answer earns a reward for the worked steps before its first mistake."""

from seele.reward.extract import last_boxed


def compute_score(data_source, solution_str, ground_truth, extra_info, most=0.5):
    """Return 1 for the right answer, else up to ``most`` for right steps. The hint earns nothing."""
    worked = "".join(extra_info["steps"]).removeprefix(extra_info["hint"]).splitlines()
    written = [line.strip() for line in solution_str.splitlines()]
    right = 0
    while right < min(len(worked), len(written)) and written[right] == worked[right].strip():
        right += 1
    solved = last_boxed(solution_str) == ground_truth
    partial = most * right / max(1, len(worked))
    return {"score": 1.0 if solved else partial, "right_steps": right}
