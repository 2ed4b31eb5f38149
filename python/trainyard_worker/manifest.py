"""Sizes and checksums of the weight files of a folder, so that another machine can check that it has the same."""

from __future__ import annotations

import json
import os
import socket
import zlib

from .errors import UserError

_NAME = "weights-manifest.json"
_CHUNK = 1 << 24


def write_manifest(folder: str) -> None:
    """Write the checksums of the weights of a folder. It is the last file that is written there."""
    names = [name for name in os.listdir(folder) if name.endswith(".safetensors")]
    files = {name: _checksum(os.path.join(folder, name)) for name in names}
    with open(os.path.join(folder, _NAME), "w", encoding="utf-8") as out:
        json.dump(files, out)


def check_manifest(folder: str) -> None:
    """Raise an error if the weights of a folder are not, or not yet, the ones that were written."""
    where = f"on the machine {socket.gethostname()}, where a vLLM server loads it"
    try:
        with open(os.path.join(folder, _NAME), encoding="utf-8") as file:
            files = json.load(file)
        wrong = [name for name, noted in files.items() if _checksum(os.path.join(folder, name)) != noted]
    except OSError as error:
        raise UserError(
            f"{folder} does not exist {where} ({error.strerror}). Put the run folder on a disk that all machines share."
        ) from error
    if wrong:
        raise UserError(f"{folder}/{wrong[0]} is not the file that was written {where}: its checksum differs.")


def _checksum(path: str) -> str:
    value = size = 0
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            value = zlib.crc32(chunk, value)
            size += len(chunk)
    return f"{size}:{value:08x}"
