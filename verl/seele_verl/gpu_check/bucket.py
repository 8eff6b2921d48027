"""Sends weights from one process to another on the same GPU, through verl's own sender and receiver.

On a GPU the bucket is shared by CUDA IPC; on a CPU it is in shared memory.
"""

import asyncio
import multiprocessing
import tempfile
from collections.abc import Iterator, Mapping

import torch

from seele_verl.gpu_check.agreement import CheckFailed

BUCKET_MIB = 4
SHAPES = {
    # Two of these fill more than a bucket, and the row of seven shifts what follows out of alignment.
    "first": ((1024, 1024), torch.bfloat16),
    "odd": ((7,), torch.bfloat16),
    "second": ((768, 1024), torch.float32),
    "last": ((3, 5), torch.float32),
}
LARGER_THAN_A_BUCKET = {"large": ((1536, 1024), torch.float32)}
"""Goes its own way, by CUDA IPC alone, as the embedding of a 7B model does."""
ANSWER_WITHIN_S = 60


def check(device: str) -> str:
    """Send the tensors of ``shapes_for``; the receiver process reports which arrived bit for bit."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        handle = f"ipc://{folder}/weights.sock"
        ours, theirs = context.Pipe()
        receiver = context.Process(target=_receive, args=(handle, device, theirs), daemon=True)
        receiver.start()
        # Imported while the receiver imports the same, because verl imports vLLM.
        from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightSender

        sender = BucketedWeightSender(handle, bucket_size_mb=BUCKET_MIB, use_shm=device != "cuda")
        asyncio.run(sender.async_send_weights(iter(_weights(device))))
        if not ours.poll(ANSWER_WITHIN_S):
            raise CheckFailed(f"the receiver was silent for {ANSWER_WITHIN_S} s after the last bucket")
        arrived = ours.recv()
        receiver.join()
    require_all(arrived, device)
    way = "CUDA IPC" if device == "cuda" else "shared memory"
    return f"{len(arrived)} tensors arrived through {way} bit for bit, in buckets of {BUCKET_MIB} MiB"


def shapes_for(device: str) -> Mapping[str, tuple[tuple[int, ...], torch.dtype]]:
    """Return the shapes and types of the tensors to send, by name; verl's shared memory takes none that is
    larger than a bucket.
    """
    return SHAPES | LARGER_THAN_A_BUCKET if device == "cuda" else SHAPES


def require_all(arrived: Mapping[str, bool], device: str) -> None:
    """Raise ``CheckFailed`` unless every tensor of ``shapes_for`` arrived as it was sent."""
    wrong = [name for name in shapes_for(device) if not arrived.get(name)]
    if wrong:
        raise CheckFailed(f"did not arrive as sent: {', '.join(wrong)}")


def _weights(device: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield names and tensors; the same numbers in every process."""
    generator = torch.Generator().manual_seed(0)
    for name, (shape, dtype) in shapes_for(device).items():
        yield name, torch.randn(shape, generator=generator).to(device=device, dtype=dtype)


def _receive(handle: str, device: str, answer: "multiprocessing.connection.Connection") -> None:
    from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver

    sent = dict(_weights(device))
    arrived: dict[str, bool] = {}

    def note(weights: list[tuple[str, torch.Tensor]], is_last: bool) -> None:
        for name, tensor in weights:
            arrived[name] = torch.equal(tensor, sent[name])
        # They are views into the bucket, which is closed after the last.
        weights.clear()

    where = torch.device("cuda:0" if device == "cuda" else "cpu")
    BucketedWeightReceiver(handle, where, use_shm=device != "cuda").receive_weights(note)
    answer.send(arrived)
