"""The policy's own successes, stored for replay.

``SuccessPool`` is ExGRPO's (arXiv:2510.02245, sections 3.2 and 3.3). A visit that solves a problem sometimes,
but not always, puts it in the pool with the correct rollout that the policy was surest of, and the
log-probabilities with which that was sampled: an uncertain success is more often right for a wrong reason. A
success that ended by itself comes before all truncated ones. A later visit that solves the problem sometimes
replaces the entry. One whose only success is the replayed one keeps that and counts as a visit with one
success, and one without any success keeps the entry as it is. A visit in which all rollouts are correct
removes it for good. Problems are drawn by their number of successes in the latest counted visit, preferably
those solved half the time.

``LastSuccesses`` stores one success per problem, and does not decide which problems a step has.

Both hold completions as JSON with packed numbers, 16 bytes a token in memory and in a checkpoint.
"""

import base64
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np

from seele.config import ReplayConfig
from seele.records import Completion, Finish, Origin, Rollout, State, Success
from seele.rounding import at_most
from seele.saved_state import read_count, read_state

Packed = Mapping[str, Any]
"""A completion as JSON; its numbers are base64 of their bytes, and one that ended by itself has no finish."""
_NUMBERS = ("token_ids", "log_probs")


@dataclass(frozen=True, slots=True)
class Experience:
    """The pool's entry for one problem."""

    num_correct: int
    """Correct rollouts in the latest visit that solved the problem sometimes, a replayed success included."""
    num_rollouts: int
    success: Packed


class SuccessPool:
    """Problems that were solved sometimes, each with a success.

    The paper instead keeps every success and replays the one with the lowest entropy under the current
    policy, at the price of a forward pass over all of them. Here the latest visit represents the current
    policy.
    """

    _HEADER: ClassVar[State] = {"pool": "successes", "version": 3}

    def __init__(self, config: ReplayConfig, *, seed: int) -> None:
        self._config = config
        self._seed = seed
        self._is_open = False
        self._pool: dict[int, Experience] = {}
        self._retired: set[int] = set()

    def observe(self, rollouts_of_problem: Mapping[int, Sequence[Rollout]]) -> None:
        """Update the pool with a step's rollouts, by problem: those generated and replayed successes.

        A problem whose generated rollouts are all correct leaves the pool for good, as in the authors' code.
        A step whose mean accuracy reaches ``start_accuracy`` opens the pool for good.
        """
        accuracies = []
        for problem, rollouts in sorted(rollouts_of_problem.items()):
            generated = [rollout for rollout in rollouts if rollout.origin is Origin.POLICY]
            correct = [rollout.completion for rollout in generated if rollout.grade.correct]
            num_correct = sum(rollout.grade.correct for rollout in rollouts)
            accuracies.append(len(correct) / len(generated))
            if len(correct) == len(generated):
                self._retired.add(problem)
                self._pool.pop(problem, None)
            elif correct and problem not in self._retired:
                # A truncated response may repeat itself, and the policy is surest of repetitions.
                best = min(correct, key=lambda done: (done.finish is not Finish.STOP, done.uncertainty))
                self._pool[problem] = Experience(num_correct, len(rollouts), _packed(best))
            elif num_correct and problem in self._pool:  # the replayed success alone
                success = self._pool[problem].success
                self._pool[problem] = Experience(num_correct, len(rollouts), success)
        self._is_open |= bool(accuracies) and float(np.mean(accuracies)) >= self._config.start_accuracy

    def draw(self, batch_size: int, *, step: int, avoid: Collection[int] = ()) -> dict[int, Completion]:
        """Return the problems to replay in a step with ``batch_size`` problems, with the success of each.

        A bucket holds the problems with the same share k/n of correct rollouts. Buckets are drawn with
        weights exp(-(k - n/2)^2 / (2 sd^2)) for k of n, the pool's largest number of rollouts, then a problem
        of the bucket uniformly, without replacement. A small pool gives fewer problems, and one that is not
        open gives none.
        """
        buckets: dict[Fraction, list[int]] = defaultdict(list)
        largest = max((experience.num_rollouts for experience in self._pool.values()), default=0)
        for problem, experience in sorted(self._pool.items()):
            if problem not in avoid:
                buckets[Fraction(experience.num_correct, experience.num_rollouts)].append(problem)
        generator = np.random.default_rng([self._seed, step])
        drawn: dict[int, Completion] = {}
        wanted = at_most(self._config.problem_share, batch_size) if self._is_open else 0
        while buckets and len(drawn) < wanted:
            keys = sorted(buckets)
            distance = (np.array(keys, dtype=float) - 0.5) * largest / self._config.bucket_sd
            weights = np.exp(((distance**2).min() - distance**2) / 2)
            key = keys[generator.choice(len(keys), p=weights / weights.sum())]
            problem = buckets[key].pop(int(generator.integers(len(buckets[key]))))
            drawn[problem] = _unpacked(self._pool[problem].success)
            if not buckets[key]:
                del buckets[key]
        return drawn

    def state_dict(self) -> State:
        """Return everything that later draws depend on; equal states give equal JSON."""
        return {
            **self._HEADER,
            "is_open": self._is_open,
            "retired": sorted(self._retired),
            "problems": [
                {
                    "problem": problem,
                    "num_correct": experience.num_correct,
                    "num_rollouts": experience.num_rollouts,
                    **experience.success,
                }
                for problem, experience in sorted(self._pool.items())
            ],
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a ``state_dict``.

        Raises:
            CheckpointError: If it is of another kind or version, or damaged. Nothing is changed then.
        """
        self._is_open, self._retired, self._pool = read_state(state, header=self._HEADER, read=_read)

    def metrics(self) -> dict[str, float]:
        """Numbers for the log, without prefix."""
        return {
            "problems": float(len(self._pool)),
            "retired": float(len(self._retired)),
            "is_open": float(self._is_open),
        }


class LastSuccesses:
    """Each problem's last success that ended by itself: among a visit's successes with the shortest hint, the
    one that the policy was surest of.
    """

    _HEADER: ClassVar[State] = {"pool": "last_successes", "version": 2}

    def __init__(self) -> None:
        self._successes: dict[int, tuple[int, Packed]] = {}
        """By problem, the steps of the hint before it and the completion."""

    def observe(self, rollouts_of_problem: Mapping[int, Sequence[Rollout]]) -> None:
        """Update the successes with a step's generated rollouts, by problem. A success with a longer hint
        than the stored one is ignored.
        """
        for problem, rollouts in rollouts_of_problem.items():
            kept = self._successes.get(problem)
            right = [
                rollout
                for rollout in rollouts
                if rollout.is_complete_and_correct and (kept is None or rollout.hint_steps <= kept[0])
            ]
            if right:
                best = min(right, key=attrgetter("preference"))
                self._successes[problem] = (best.hint_steps, _packed(best.completion))

    def of(self, problems: Iterable[int]) -> dict[int, Success]:
        """Return the successes of the given problems, where there are any."""
        kept = {problem: self._successes[problem] for problem in problems if problem in self._successes}
        return {problem: Success(_unpacked(packed), steps) for problem, (steps, packed) in kept.items()}

    def state_dict(self) -> State:
        """Return everything stored; equal states give equal JSON."""
        return {
            **self._HEADER,
            "problems": [
                {"problem": problem, "hint_steps": hint_steps, **success}
                for problem, (hint_steps, success) in sorted(self._successes.items())
            ],
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a ``state_dict``.

        Raises:
            CheckpointError: If it is of another kind or version, or damaged. Nothing is changed then.
        """
        self._successes = read_state(state, header=self._HEADER, read=_read_successes)

    def metrics(self) -> dict[str, float]:
        """Numbers for the log, without prefix."""
        hinted = sum(hint_steps > 0 for hint_steps, _ in self._successes.values())
        return {"problems": float(len(self._successes)), "hinted": float(hinted)}


def _packed(success: Completion) -> Packed:
    ended = {} if success.finish is Finish.STOP else {"finish": success.finish}
    return {
        "text": success.text,
        "token_ids": base64.b64encode(np.array(success.token_ids, "<i4").tobytes()).decode(),
        "log_probs": base64.b64encode(np.array(success.log_probs, "<f8").tobytes()).decode(),
        **ended,
    }


def _unpacked(success: Packed) -> Completion:
    token_ids, log_probs = (base64.b64decode(success[name], validate=True) for name in _NUMBERS)
    return Completion(
        text=str(success["text"]),
        token_ids=tuple(np.frombuffer(token_ids, "<i4").tolist()),
        log_probs=tuple(np.frombuffer(log_probs, "<f8").tolist()),
        finish=Finish(success.get("finish", Finish.STOP)),
    )


def _read_success(entry: Mapping[str, Any]) -> Packed:
    _unpacked(entry)
    return {name: entry[name] for name in ("text", *_NUMBERS, "finish") if name in entry}


def _read(state: Mapping[str, Any]) -> tuple[bool, set[int], dict[int, Experience]]:
    pool = {
        read_count(entry["problem"]): Experience(
            read_count(entry["num_correct"]), read_count(entry["num_rollouts"]), _read_success(entry)
        )
        for entry in state["problems"]
    }
    return bool(state["is_open"]), {read_count(problem) for problem in state["retired"]}, pool


def _read_successes(state: Mapping[str, Any]) -> dict[int, tuple[int, Packed]]:
    return {
        read_count(entry["problem"]): (read_count(entry["hint_steps"]), _read_success(entry))
        for entry in state["problems"]
    }
