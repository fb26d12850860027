"""The bundle as a file, without `onnx`: is it a whole model, what lies beside it, what does its passport say.

An .onnx file is one protobuf message. Only its outermost fields and its weights' addresses matter here, and walking
those takes microseconds a tensor, so that a truncated file, an LFS pointer or a missing weight file gets its name
before a runtime is asked to load it.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator, Mapping
from pathlib import Path

from onbudget.core.errors import BundleError
from onbudget.core.metadata import KEY, Metadata

Buffer = bytes | mmap.mmap

# Field numbers of onnx.proto, which never change.
_MODEL_GRAPH, _MODEL_METADATA = 7, 14
_GRAPH_INITIALIZER = 5
_TENSOR_EXTERNAL, _TENSOR_LOCATION = 13, 14
_ENTRY_KEY, _ENTRY_VALUE = 1, 2

_LFS = b"version https://git-lfs.github.com/spec/"
# What people hand over instead of a model, by its first bytes.
_OTHERS = (
    (b"PK\x03\x04", "a zip archive (a PyTorch checkpoint, perhaps); export it first: onbudget export --help"),
    (b"\x80\x02", "a pickle (an old PyTorch checkpoint, perhaps); export it first: onbudget export --help"),
    (b"\x89HDF", "an HDF5 file (Keras, perhaps); export it to ONNX first"),
    (b"<", "an HTML or XML page (a download that needed a login, perhaps)"),
    (b"{", "JSON"),
)
# The same by bytes 4 to 8, where flatbuffers keep their name.
_FLATBUFFERS = {
    b"TFL3": "a TensorFlow Lite model",
    b"ORTM": "a model in ONNX Runtime's own ORT format; bundles are made from .onnx files",
}


def check_file(path: Path) -> None:
    """BundleError unless `path` is a whole .onnx file with its external data beside it; says what is wrong."""
    if path.is_dir():
        models = sorted(p.name for p in path.glob("*.onnx"))
        hint = f"; it holds {', '.join(models[:5])}" if models else ", and no .onnx file is in it"
        raise BundleError(f"{path} is a directory{hint}")
    if not path.exists():
        raise BundleError(f"{path}: no such file{_near(path)}")
    if not path.is_file():
        raise BundleError(f"{path} is not a regular file")
    try:
        with _mapped(path) as data:
            _check_head(path, data[:128], len(data))
            external = _external(data, f"{path}")
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror}") from error
    for name, least in external.items():
        _check_external(path, name, least)


def external_data(path: Path) -> dict[str, int]:
    """The files that hold the model's weights beside it: relative name → bytes that it must have at least."""
    with _mapped(path) as data:
        return _external(data, f"{path}")


def file_sha256(model: Path | bytes) -> str:
    """SHA-256 of a file's bytes, or of bytes, in hex."""
    if isinstance(model, bytes):
        return hashlib.sha256(model).hexdigest()
    with model.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def metadata_of(custom: Mapping[str, str]) -> Metadata | None:
    """The passport in a session's `get_modelmeta().custom_metadata_map`; None for a plain .onnx."""
    text = custom.get(KEY)
    return None if text is None else Metadata.from_json(text)


def read_metadata(path: Path) -> Metadata | None:
    """The passport in a file, without opening a session; None for a plain .onnx. BundleError as in `check_file`."""
    check_file(path)
    with _mapped(path) as data:
        for number, start, end in _fields(data, 0, len(data), f"{path}"):
            if number == _MODEL_METADATA:
                key, value = _entry(data, start, end, f"{path}")
                if key == KEY:
                    return Metadata.from_json(value)
    return None


def with_metadata(model: bytes, metadata: Metadata) -> bytes:
    """The same model with this passport in place of any that it had; every other byte is kept."""
    kept = []
    done = at = 0
    for number, start, end in _fields(model, 0, len(model), "the model"):
        if number == _MODEL_METADATA and _entry(model, start, end, "the model")[0] == KEY:
            kept.append(model[done:at])
            done = end
        at = end
    kept.append(model[done:])
    entry = _block(_ENTRY_KEY, KEY.encode()) + _block(_ENTRY_VALUE, metadata.to_json().encode())
    return b"".join([*kept, _block(_MODEL_METADATA, entry)])


# ---- what is wrong with a file --------------------------------------------------------------------------------------


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        if not path.stat().st_size:
            raise BundleError(f"{path} is empty")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _near(path: Path) -> str:
    if not path.parent.is_dir():
        return f" (there is no folder {path.parent})"
    import difflib

    here = sorted(p.name for p in path.parent.glob("*.onnx"))
    near = difflib.get_close_matches(path.name, here, n=1) or here[:1]
    return f"; did you mean {path.with_name(near[0])}?" if near else ""


def _check_head(path: Path, head: bytes, size: int) -> None:
    if head.startswith(_LFS):
        raise BundleError(f"{path} is a Git LFS pointer, not the model itself; fetch it with: git lfs pull")
    for magic, what in _OTHERS:
        if head.startswith(magic):
            raise BundleError(f"{path} is not an .onnx file but {what}")
    if head[4:8] in _FLATBUFFERS:
        raise BundleError(f"{path} is not an .onnx file but {_FLATBUFFERS[head[4:8]]}")
    if size < 16:
        raise BundleError(f"{path} is not an .onnx file: it has {size} bytes")


def _check_external(path: Path, name: str, least: int) -> None:
    beside = path.parent / name
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise BundleError(
            f"{path} wants its weights from {name!r}, outside its own folder; only files beside it are read"
        )
    if not beside.is_file():
        raise BundleError(
            f"{path} keeps its weights in {name!r}, which is missing; copy it into {path.parent}, "
            "or save the model as one file"
        )
    with beside.open("rb") as file:
        if file.read(len(_LFS)) == _LFS:
            raise BundleError(f"{beside} is a Git LFS pointer, not the weights; fetch them with: git lfs pull")
    size = beside.stat().st_size
    if size < least:
        raise BundleError(f"{beside} is cut short: {size} bytes, and the model wants {least}")


def _external(data: Buffer, name: str) -> dict[str, int]:
    found: dict[str, int] = {}
    graphs = 0
    for number, start, end in _fields(data, 0, len(data), name):
        if number != _MODEL_GRAPH:
            continue
        graphs += 1
        for inner, first, last in _fields(data, start, end, name):
            if inner == _GRAPH_INITIALIZER:
                _one_external(data, first, last, name, found)
    if not graphs:
        raise BundleError(f"{name} is not an .onnx file: it has no graph")
    return found


def _one_external(data: Buffer, start: int, end: int, name: str, found: dict[str, int]) -> None:
    told: dict[str, str] = {}
    for number, first, last in _fields(data, start, end, name):
        if number == _TENSOR_EXTERNAL:
            key, value = _entry(data, first, last, name)
            told[key] = value
    if "location" in told:
        try:
            least = int(told.get("offset") or 0) + int(told.get("length") or 0)
        except ValueError as error:
            raise BundleError(f"{name}: a weight's address is damaged: {told}") from error
        found[told["location"]] = max(found.get(told["location"], 0), least)


# ---- protobuf, as little as is needed -------------------------------------------------------------------------------


def _fields(data: Buffer, start: int, end: int, name: str) -> Iterator[tuple[int, int, int]]:
    """(field number, first byte of the value, byte after it) of one message's fields, in order."""
    at = start
    while at < end:
        tag, at = _varint(data, at, end, name)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            first = at
            _, at = _varint(data, at, end, name)
        elif wire == 2:
            length, first = _varint(data, at, end, name)
            at = first + length
        elif wire in (1, 5):
            first, at = at, at + (8 if wire == 1 else 4)
        else:
            raise BundleError(f"{name} is not an .onnx file: it is not a protobuf message")
        if at > end:
            raise BundleError(
                f"{name} is cut short, or not an .onnx file: it wants {at - end} more bytes; copy it again"
            )
        if number == 0:
            raise BundleError(f"{name} is not an .onnx file: it is not a protobuf message")
        yield number, first, at


def _varint(data: Buffer, at: int, end: int, name: str) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise BundleError(f"{name} is cut short, or not an .onnx file")


def _entry(data: Buffer, start: int, end: int, name: str) -> tuple[str, str]:
    told = {1: b"", 2: b""}
    for number, first, last in _fields(data, start, end, name):
        told[number] = data[first:last]
    return told[_ENTRY_KEY].decode("utf-8", "replace"), told[_ENTRY_VALUE].decode("utf-8", "replace")


def _block(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint_bytes(len(value)) + value


def _varint_bytes(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
