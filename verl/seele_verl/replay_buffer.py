"""Selects the groups that a step trains on where it started more than it needs
(``seele.curriculum.spare_problems``).
"""

from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

TRAIN = "train"


class SpareProblemsBuffer(ReplayBuffer):
    """verl's replay buffer, but a step ends once enough groups are done, including all that were left behind
    before.

    Which groups a step trains on depends on how long they took. Whether a problem is trained on does not,
    because the next step waits for what a step leaves behind. Either all of a group's rollouts are trained
    on or none.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.awaited: frozenset[str] = frozenset()
        """Groups that the step cannot end without."""

    def _sampleable_terminal_keys(self, partition_id: str, eviction_reasons: Any) -> set[str]:
        done: set[str] = super()._sampleable_terminal_keys(partition_id, eviction_reasons)
        if partition_id != TRAIN:
            return done
        if not self.awaited <= done:
            return set()
        # A failed group has no rollouts; it is taken only if no other group can still take its place.
        others_may_end = self.pending_keys[TRAIN] or self.running_keys[TRAIN]
        return done - (self.failure_keys[TRAIN] - self.awaited) if others_may_end else done

    def _select_prompt_uids(self, partition_id: str, sampleable_keys: set[str], batch_size: int) -> Any:
        if partition_id == TRAIN:
            failed = self.failure_keys[TRAIN]
            in_order = sorted(sampleable_keys, key=lambda uid: (uid not in self.awaited, uid in failed, uid))
            sampleable_keys = set(in_order[:batch_size])
        return super()._select_prompt_uids(partition_id, sampleable_keys, batch_size)

    def left_behind(self) -> list[str]:
        """Return the groups that were started but not taken, in order."""
        self._sync_metadata_from_transfer_queue()
        statuses = (self.pending_keys, self.running_keys, self.finished_keys, self.failure_keys)
        return sorted(uid for groups in statuses for uid in groups[TRAIN])

    def forget(self, uids: list[str]) -> None:
        """Drop what these groups have stored. They must not be rolling out any more."""
        # verl's own look: with ours, a worker that replaces a lost one would begin these groups again.
        super()._sync_metadata_from_transfer_queue()
        self._clear_groups(TRAIN, set(uids))
