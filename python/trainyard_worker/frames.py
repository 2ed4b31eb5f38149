"""Messages as bytes: MessagePack in which a typed array is the extension 0x74 (a code for its type, then its memory).

On a stream the length of each message comes before it: four bytes, least significant first.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

_TYPED_ARRAY = 0x74
_CODES: dict[int, np.dtype[Any]] = {5: np.dtype("<i4"), 7: np.dtype("<f4"), 8: np.dtype("<f8")}
_CODE_OF = {dtype: code for code, dtype in _CODES.items()}


def pack(message: Any) -> bytes:
    """A message as bytes; arrays are of int32, float32 or float64 and lose their shape."""
    packed: bytes = msgpack.packb(message, default=_pack_array, use_bin_type=True)
    return packed


def unpack(data: bytes) -> Any:
    """The message of some bytes; its arrays are writable."""
    return msgpack.unpackb(data, ext_hook=_unpack_array, strict_map_key=False, raw=False)


def framed(message: Any) -> bytes:
    """A message as it is written to a stream."""
    data = pack(message)
    return struct.pack("<I", len(data)) + data


def read_frame(read: Callable[[int], bytes]) -> Any | None:
    """The next message of a stream; None at its end."""
    head = read(4)
    if len(head) < 4:
        return None
    (length,) = struct.unpack("<I", head)
    data = read(length)
    return unpack(data) if len(data) == length else None


def _pack_array(value: Any) -> msgpack.ExtType:
    if not isinstance(value, np.ndarray):
        raise TypeError(f"a message cannot hold a {type(value).__name__}")
    return msgpack.ExtType(_TYPED_ARRAY, bytes([_CODE_OF[value.dtype]]) + value.tobytes())


def _unpack_array(code: int, data: bytes) -> NDArray[Any]:
    if code != _TYPED_ARRAY:
        raise ValueError(f"a message has the unknown extension {code:#x}")
    return np.frombuffer(data, dtype=_CODES[data[0]], offset=1).copy()
