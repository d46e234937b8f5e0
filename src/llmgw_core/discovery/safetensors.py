"""Whether a safetensors file has the size that its own header declares.

In: an open file.  Out: nothing; raises `Unusable`.
Rule: the size must be exact. A file that is longer is refused by the engines' reader too ("incomplete metadata").
"""

from __future__ import annotations

import json

from llmgw_core.discovery.weight_file import Unusable, WeightFile, cut_short

# https://huggingface.co/docs/safetensors/index#format: 8 bytes, N, little-endian; N bytes of JSON that begin with `{`;
# {"NAME": {"dtype": …, "shape": …, "data_offsets": [BEGIN, END]}, "__metadata__": {…}}, offsets from the header's end.
_LENGTH_BYTES = 8
_MOST_HEADER_BYTES = 100_000_000  # safetensors/src/tensor.rs: MAX_HEADER_SIZE
_READ_BYTES = 16 * 1024 * 1024
"""Headers of real files are below 3 MiB. A longer one is believed: reading it would cost more than it is worth."""


def check_safetensors(file: WeightFile) -> None:
    length = int.from_bytes(file.read(0, _LENGTH_BYTES), "little")
    if file.size < _LENGTH_BYTES or file.read(_LENGTH_BYTES, 1) not in (b"{", b""):
        raise Unusable("is not a safetensors file")
    if not 0 < length <= _MOST_HEADER_BYTES:
        raise Unusable(f"is not a safetensors file: its header would be {length:,} bytes long")
    if _LENGTH_BYTES + length > file.size:
        raise Unusable(f"is cut short: {file.size:,} bytes, and its header alone ends at {_LENGTH_BYTES + length:,}")
    if length > _READ_BYTES:
        return
    declared = _LENGTH_BYTES + length + _data_bytes(file.read(_LENGTH_BYTES, length))
    if file.size < declared:
        raise Unusable(cut_short(file.size, declared))
    if file.size > declared:
        raise Unusable(f"is damaged: {file.size - declared:,} bytes longer than the {declared:,} of its header")


def _data_bytes(header: bytes) -> int:
    """How many bytes follow the header."""
    try:
        tensors = json.loads(header)
        ends = [tensor["data_offsets"][1] for name, tensor in tensors.items() if name != "__metadata__"]
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise Unusable("is damaged: its header cannot be read") from error
    if not all(type(end) is int and end >= 0 for end in ends):
        raise Unusable("is damaged: its header has offsets that are no numbers")
    return max(ends, default=0)
