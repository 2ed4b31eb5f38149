"""Sends weights from the first worker to the vLLM servers by torch's broadcast: over NCCL if every process has a GPU of
its own, else over gloo and CPU memory.

A layer at a time is sent: a header that describes the tensors, then their bytes. A checksum of all bytes comes last.
This file has both ends. The receiving end runs in vLLM's Python and needs nothing but torch.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

Message = dict[str, Any]
_ALIGNED = 8
_BROADCAST_BYTES = 1 << 28
"""Bytes of one broadcast."""


def open_store(host: str, timeout: float) -> dist.TCPStore:
    """Open the store through which the servers find the first worker; called by that worker."""
    wait = timedelta(seconds=timeout)
    return dist.TCPStore(host, 0, is_master=True, timeout=wait, wait_for_workers=False)


def connect_store(address: str, timeout: float) -> dist.TCPStore:
    """Connect to the store of the first worker; called by a server."""
    host, _, port = address.rpartition(":")
    return dist.TCPStore(host, int(port), is_master=False, timeout=timedelta(seconds=timeout))


class WeightTransferGroup:
    """The process group of the first worker (rank 0) and the servers. The constructor returns when all have joined."""

    def __init__(self, store: dist.TCPStore, rank: int, world: int, device: torch.device, timeout: float) -> None:
        self._device = device
        kind: Any = dist.ProcessGroupNCCL if device.type == "cuda" else dist.ProcessGroupGloo
        self._group = kind(store, rank, world, timedelta(seconds=timeout))

    def send(self, pieces: Iterable[dict[str, Tensor]]) -> None:
        """Send tensors by name, one piece after the other."""
        checksum = 0
        for piece in pieces:
            tensors = [(name, str(one.dtype).removeprefix("torch."), list(one.shape)) for name, one in piece.items()]
            data = torch.cat([_bytes(tensor.to(self._device)) for tensor in piece.values()])
            checksum = _checksum(data, checksum)
            self._send_header({"tensors": tensors})
            self._broadcast(data)
        self._send_header({"checksum": checksum})

    def receive(self) -> Iterator[tuple[str, Tensor]]:
        """The tensors as they arrive. The checksum is verified at the end."""
        checksum = 0
        while "tensors" in (header := self._receive_header()):
            kinds = [(name, getattr(torch, kind), shape) for name, kind, shape in header["tensors"]]
            sizes = [math.prod(shape) * kind.itemsize for _, kind, shape in kinds]
            data = self._broadcast(self._empty(sum(map(_rounded, sizes))))
            checksum = _checksum(data, checksum)
            parts = data.split([_rounded(size) for size in sizes])
            for part, size, (name, kind, shape) in zip(parts, sizes, kinds, strict=True):
                yield name, part[:size].view(kind).view(shape)
        if checksum != header["checksum"]:
            raise RuntimeError(f"the received weights are not those that were sent: {checksum}, {header['checksum']}")

    def _send_header(self, header: Message) -> None:
        data = torch.frombuffer(bytearray(json.dumps(header).encode()), dtype=torch.uint8).to(self._device)
        self._broadcast(torch.tensor([data.numel()], device=self._device))
        self._broadcast(data)

    def _receive_header(self) -> Message:
        size = self._broadcast(torch.zeros(1, dtype=torch.int64, device=self._device))
        header: Message = json.loads(bytes(self._broadcast(self._empty(int(size))).tolist()))
        return header

    def _empty(self, size: int) -> Tensor:
        return torch.empty(size, dtype=torch.uint8, device=self._device)

    def _broadcast(self, data: Tensor) -> Tensor:
        for part in data.split(_BROADCAST_BYTES):
            self._group.broadcast(part, 0).wait()
        return data


def _rounded(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def _bytes(tensor: Tensor) -> Tensor:
    """A tensor's memory as bytes, padded to a multiple of eight."""
    data = tensor.contiguous().view(-1).view(torch.uint8)
    return torch.nn.functional.pad(data, (0, _rounded(data.numel()) - data.numel()))


def _checksum(data: Tensor, before: int) -> int:
    """The checksum of some bytes and all bytes before them. A sum of words is fast on any device."""
    return zlib.crc32(str(int(data.view(torch.int64).sum())).encode(), before)
