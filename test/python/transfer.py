"""Weights from one process to two others over gloo: all of them come as they were sent, or somebody says so.

python transfer.py PACKAGE     prints a line for each law that holds
"""

import multiprocessing
import os
import signal
import sys
import time
from multiprocessing.connection import Connection

sys.path.insert(0, sys.argv[1])

import torch  # noqa: E402
from trainyard_worker import transfer  # noqa: E402
from trainyard_worker.transfer import Line, find_store, open_store  # noqa: E402

CPU = torch.device("cpu")
WORLD = 3
SECONDS = 30.0


def pieces(seed: int) -> list[dict[str, torch.Tensor]]:
    """Tensors of all the kinds that a model has: odd sizes, no size, several types, not in a row in memory."""
    torch.manual_seed(seed)
    return [
        {"a": torch.randn(7, 3), "b": torch.randn(5).to(torch.bfloat16), "c": torch.tensor(3.5)},
        {"d": torch.randn(4, 6).t(), "e": torch.arange(11, dtype=torch.int8)},
        {"f": torch.randn(3000), "none": torch.empty(0, 2)},
    ]


def receive(rank: int, address: str, pipe: Connection) -> None:
    """Tell what has come, round by round."""
    transfer._AT_ONCE = 4096  # some come in several broadcasts
    line = Line(find_store(address, SECONDS), rank, WORLD, CPU, SECONDS)
    while True:
        try:
            pipe.send({name: tensor.clone() for name, tensor in line.receive()})
        except RuntimeError as error:
            pipe.send(str(error))


def main() -> None:
    """Send to two others."""
    transfer._AT_ONCE = 4096
    store = open_store("127.0.0.1", SECONDS)
    spawn = multiprocessing.get_context("spawn")
    pipes, others = [], []
    for rank in range(1, WORLD):
        near, far = spawn.Pipe()
        address = f"127.0.0.1:{store.port}"
        others.append(spawn.Process(target=receive, args=(rank, address, far), daemon=True))
        others[-1].start()
        pipes.append(near)
    line = Line(store, 0, WORLD, CPU, SECONDS)

    for seed in (0, 1):
        line.send(iter(pieces(seed)))
        sent = {name: tensor for piece in pieces(seed) for name, tensor in piece.items()}
        for pipe in pipes:
            came = pipe.recv()
            assert list(came) == list(sent)
            for name, tensor in sent.items():
                assert came[name].dtype == tensor.dtype and came[name].shape == tensor.shape, name
                assert torch.equal(came[name], tensor), name
    print("what comes is what was sent, every time")

    whole = transfer._checksum
    transfer._checksum = lambda data, before: whole(data, before) ^ 1
    line.send(iter(pieces(0)))
    for pipe in pipes:
        assert "not those that were sent" in pipe.recv()
    transfer._checksum = whole
    print("what comes otherwise is refused")

    os.kill(others[0].pid or 0, signal.SIGKILL)
    others[0].join()
    start = time.monotonic()
    try:
        line.send(iter(pieces(0)))
        line.send(iter(pieces(1)))
        raise SystemExit("nobody noticed")
    except RuntimeError as error:
        assert time.monotonic() - start < SECONDS / 3, error
    print("who is gone is missed")
    os._exit(0)  # without those that wait


if __name__ == "__main__":
    main()
