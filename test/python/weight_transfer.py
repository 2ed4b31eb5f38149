"""Sends weights from one process to two others over gloo: they arrive as they were sent, or an error is raised.

python weight_transfer.py PACKAGE     prints a line for each law that holds
"""

import multiprocessing
import os
import signal
import sys
import time
from multiprocessing.connection import Connection

sys.path.insert(0, sys.argv[1])

import torch  # noqa: E402
from trainyard_worker import weight_transfer  # noqa: E402
from trainyard_worker.weight_transfer import WeightTransferGroup, connect_store, open_store  # noqa: E402

CPU = torch.device("cpu")
WORLD = 3
SECONDS = 30.0


def pieces(seed: int) -> list[dict[str, torch.Tensor]]:
    """Tensors of all kinds that a model has: odd sizes, empty, several dtypes, not contiguous."""
    torch.manual_seed(seed)
    return [
        {"a": torch.randn(7, 3), "b": torch.randn(5).to(torch.bfloat16), "c": torch.tensor(3.5)},
        {"d": torch.randn(4, 6).t(), "e": torch.arange(11, dtype=torch.int8)},
        {"f": torch.randn(3000), "none": torch.empty(0, 2)},
    ]


def receive(rank: int, address: str, pipe: Connection) -> None:
    """Send back what arrived, round by round."""
    weight_transfer._BROADCAST_BYTES = 4096  # some tensors need several broadcasts
    group = WeightTransferGroup(connect_store(address, SECONDS), rank, WORLD, CPU, SECONDS)
    while True:
        try:
            pipe.send({name: tensor.clone() for name, tensor in group.receive()})
        except RuntimeError as error:
            pipe.send(str(error))


def main() -> None:
    """Send to two other processes."""
    weight_transfer._BROADCAST_BYTES = 4096
    store = open_store("127.0.0.1", SECONDS)
    spawn = multiprocessing.get_context("spawn")
    pipes, others = [], []
    for rank in range(1, WORLD):
        near, far = spawn.Pipe()
        address = f"127.0.0.1:{store.port}"
        others.append(spawn.Process(target=receive, args=(rank, address, far), daemon=True))
        others[-1].start()
        pipes.append(near)
    group = WeightTransferGroup(store, 0, WORLD, CPU, SECONDS)

    for seed in (0, 1):
        group.send(iter(pieces(seed)))
        sent = {name: tensor for piece in pieces(seed) for name, tensor in piece.items()}
        for pipe in pipes:
            came = pipe.recv()
            assert list(came) == list(sent)
            for name, tensor in sent.items():
                assert came[name].dtype == tensor.dtype and came[name].shape == tensor.shape, name
                assert torch.equal(came[name], tensor), name
    print("the received tensors are the sent ones, every time")

    whole = weight_transfer._checksum
    weight_transfer._checksum = lambda data, before: whole(data, before) ^ 1
    group.send(iter(pieces(0)))
    for pipe in pipes:
        assert "not those that were sent" in pipe.recv()
    weight_transfer._checksum = whole
    print("a wrong checksum is an error")

    os.kill(others[0].pid or 0, signal.SIGKILL)
    others[0].join()
    start = time.monotonic()
    try:
        group.send(iter(pieces(0)))
        group.send(iter(pieces(1)))
        raise SystemExit("the dead receiver was not noticed")
    except RuntimeError as error:
        assert time.monotonic() - start < SECONDS / 3, error
    print("a dead receiver is an error")
    os._exit(0)  # without the processes that still wait


if __name__ == "__main__":
    main()
