"""Contracts: YAML that names queues and their typed fields, and the bytes of tasks that follow it.

Pure but for reading and writing files. Invariants: every fault of a file is reported, with its place; a task
decodes to exactly what was encoded, or is refused: nothing is cut off, padded or guessed.
"""

from forebay.contract.comparing import Change, compare
from forebay.contract.errors import Fault, InvalidContract, InvalidFile, Undecodable, UnknownFormat
from forebay.contract.format import Format
from forebay.contract.reading import parse_contract, read_contract
from forebay.contract.rows import decode, encode
from forebay.contract.values import Backoff, Codec, Contract, Field, FieldType, QueueContract, WorkSettings

__all__ = [
    "Backoff",
    "Change",
    "Codec",
    "Contract",
    "Fault",
    "Field",
    "FieldType",
    "Format",
    "InvalidContract",
    "InvalidFile",
    "QueueContract",
    "Undecodable",
    "UnknownFormat",
    "WorkSettings",
    "compare",
    "decode",
    "encode",
    "parse_contract",
    "read_contract",
]
