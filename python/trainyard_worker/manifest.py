"""What a folder of weights consists of, so that another machine can tell that it sees the same: sizes and checksums."""

from __future__ import annotations

import json
import os
import socket
import zlib

from .refusal import Refusal

_NAME = "weights-manifest.json"
_CHUNK = 1 << 24


def write_manifest(folder: str) -> None:
    """Note the weights of a folder as they are; the last thing that is written to it."""
    names = [name for name in os.listdir(folder) if name.endswith(".safetensors")]
    files = {name: _checksum(os.path.join(folder, name)) for name in names}
    with open(os.path.join(folder, _NAME), "w", encoding="utf-8") as out:
        json.dump(files, out)


def check_manifest(folder: str) -> None:
    """Refuse a folder whose weights are not, or not yet, what was written."""
    where = f"on the machine {socket.gethostname()}, where a vLLM server is to load it"
    try:
        with open(os.path.join(folder, _NAME), encoding="utf-8") as file:
            files = json.load(file)
        wrong = [name for name, noted in files.items() if _checksum(os.path.join(folder, name)) != noted]
    except OSError as error:
        raise Refusal(
            f"{folder} is not there {where} ({error.strerror}). Put the run folder on a disk that all machines share."
        ) from error
    if wrong:
        raise Refusal(f"{folder}/{wrong[0]} is not the file that was written {where}: its checksum is another.")


def _checksum(path: str) -> str:
    value = size = 0
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            value = zlib.crc32(chunk, value)
            size += len(chunk)
    return f"{size}:{value:08x}"
