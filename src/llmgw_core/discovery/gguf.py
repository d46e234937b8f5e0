"""Whether a GGUF file is one that llama.cpp reads, and holds all the tensors that it describes.

In: an open file.  Out: what it says of the split that it is a part of; raises `Unusable`.
Rule: the metadata in front of the tensors is walked, not kept; where it is longer than one reads, or a tensor's type is
not known, the size is not judged.
"""

from __future__ import annotations

import struct
from math import prod

from attrs import define, frozen

from llmgw_core.discovery.weight_file import Beginning, NotJudged, Unusable, WeightFile, cut_short

# https://github.com/ggml-org/ggml/blob/master/docs/gguf.md: magic, uint32 version, uint64 tensor count, uint64 metadata
# count; metadata: string key, uint32 type, value; tensors: string name, uint32 dimensions, uint64 each, uint32 type,
# uint64 offset from the tensors' begin, which is aligned. Strings: uint64 length, bytes.
_MAGIC = b"GGUF"
_VERSIONS = (2, 3)  # 1 had 32-bit lengths; llama.cpp no longer reads it
_STRING, _ARRAY = 8, 9
_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_MOST_DIMENSIONS = 4  # ggml.h: GGML_MAX_DIMS
_ALIGNMENT = 32
_READ_BYTES = 32 * 1024 * 1024
"""A vocabulary of 260,000 words with its merges takes about 16 MiB."""

# Elements and bytes of a block by type, as libggml-base 0.20.0 answers ggml_blck_size and ggml_type_size.
_BLOCKS = {
    **{
        0: (1, 4),
        1: (1, 2),
        24: (1, 1),
        25: (1, 2),
        26: (1, 4),
        27: (1, 8),
        28: (1, 8),
        30: (1, 2),
    },  # F32 F16 I* F64 BF16
    **{2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36)},  # Q4_0 … Q8_1
    **{10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292)},  # Q2_K … Q8_K
    **{16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18)},  # IQ2_XXS … IQ4_NL
    **{21: (256, 110), 22: (256, 82), 23: (256, 136), 29: (256, 56)},  # IQ3_S IQ2_S IQ4_XS IQ1_M
    **{
        34: (256, 54),
        35: (256, 66),
        39: (32, 17),
        40: (64, 36),
        41: (128, 18),
        42: (64, 18),
    },  # TQ* MXFP4 NVFP4 Q1_0 Q2_0
}


@frozen
class Split:
    """`number` from 0; `count` 0: the file says nothing of it."""

    number: int = 0
    count: int = 0


@define
class _Told:
    alignment: int = _ALIGNMENT
    number: int = 0
    count: int = 0


def check_gguf(file: WeightFile) -> Split:
    start = Beginning(file, _READ_BYTES)
    told = _Told()
    tensors, entries = _read_counts(file, start)
    try:
        for _ in range(entries):
            _read_entry(start, told)
        _check_size(file, start, tensors, told.alignment)
    except NotJudged:
        pass
    return Split(told.number, told.count)


def _read_counts(file: WeightFile, start: Beginning) -> tuple[int, int]:
    if file.read(0, len(_MAGIC)) != _MAGIC:
        raise Unusable("is not a GGUF file")
    start.take(len(_MAGIC))
    version = _number(start, 4)
    if version and not version & 0xFFFF:
        raise Unusable("is a big-endian GGUF file: it is for other machines")
    if version not in _VERSIONS:
        raise Unusable(f"is GGUF version {version}; llama.cpp reads 2 and 3")
    return _number(start, 8), _number(start, 8)


def _number(start: Beginning, size: int) -> int:
    return int.from_bytes(start.take(size), "little")


def _text(start: Beginning) -> bytes:
    return start.take(_number(start, 8))


def _read_entry(start: Beginning, told: _Told) -> None:
    key, kind = _text(start), _number(start, 4)
    if kind not in _SCALAR_BYTES:
        _skip_long(start, kind)
        return
    value = _number(start, _SCALAR_BYTES[kind])
    # gguf.md, "General" and "Split": the keys that matter here.
    if key == b"general.alignment" and value:
        told.alignment = value
    elif key == b"split.no":
        told.number = value
    elif key == b"split.count":
        told.count = value


def _skip_long(start: Beginning, kind: int) -> None:
    if kind == _STRING:
        start.skip_strings(1)
        return
    if kind != _ARRAY:
        raise Unusable(f"is damaged: it has metadata of a type {kind} that does not exist")
    of, count = _number(start, 4), _number(start, 8)
    if of in _SCALAR_BYTES:
        start.skip(_SCALAR_BYTES[of] * count)
    elif of == _STRING:
        start.skip_strings(count)
    elif of == _ARRAY:  # allowed by the format, written by nobody
        raise NotJudged
    else:
        raise Unusable(f"is damaged: it has a list of a type {of} that does not exist")


def _check_size(file: WeightFile, start: Beginning, tensors: int, alignment: int) -> None:
    end = 0
    for _ in range(tensors):
        end = max(end, _tensor_end(start))
    declared = start.at + -start.at % alignment + end if tensors else start.at
    if file.size < declared:
        raise Unusable(cut_short(file.size, declared))


def _tensor_end(start: Beginning) -> int:
    """Where a tensor's data end, as far as its type is known."""
    start.skip_strings(1)
    dimensions = _number(start, 4)
    if dimensions > _MOST_DIMENSIONS:
        raise Unusable(f"is damaged: it has a tensor of {dimensions} dimensions")
    sizes: tuple[int, ...] = struct.unpack(f"<{dimensions}Q", start.take(8 * dimensions))
    kind, offset = _number(start, 4), _number(start, 8)
    per_block, block_bytes = _BLOCKS.get(kind, (1, 0))
    return offset + prod(sizes) // per_block * block_bytes
