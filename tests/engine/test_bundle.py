"""What is wrong with a file is said before a runtime is asked to load it; the passport is read without `onnx`."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from onbudget.core.errors import BundleError, UsageError
from onbudget.core.metadata import KEY, Metadata
from onbudget.engine.bundle import check_file, external_data, file_sha256, metadata_of, read_metadata, with_metadata
from onbudget.engine.files import write_atomically
from tests import models


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return models.write(models.tile_cnn(), tmp_path / "model.onnx")


def test_a_whole_file_passes(model: Path) -> None:
    """Nothing is said of a file that is fine."""
    check_file(model)
    assert external_data(model) == {}


def test_a_folder_is_not_a_model_but_may_hold_some(model: Path) -> None:
    """The message lists the models in the folder."""
    with pytest.raises(BundleError, match=r"is a directory; it holds model\.onnx"):
        check_file(model.parent)
    empty = model.parent / "empty"
    empty.mkdir()
    with pytest.raises(BundleError, match=r"is a directory, and no \.onnx file is in it"):
        check_file(empty)


def test_a_missing_file_s_neighbour_is_suggested(model: Path) -> None:
    """A slip in the name finds the model beside it; a missing folder is said to be missing."""
    with pytest.raises(BundleError, match=r"modle\.onnx: no such file; did you mean .*model\.onnx\?"):
        check_file(model.with_name("modle.onnx"))
    with pytest.raises(BundleError, match=r"no such file \(there is no folder .*nowhere\)"):
        check_file(model.parent / "nowhere" / "model.onnx")


CONTENTS = {
    b"": "is empty",
    b"\x08\x08": "is not an .onnx file: it has 2 bytes",
    b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n": "is a Git LFS pointer.*git lfs pull",
    b"PK\x03\x04" + bytes(40): r"a zip archive \(a PyTorch checkpoint, perhaps\)",
    b"\x80\x02}q\x00" + bytes(40): "a pickle",
    b"<!DOCTYPE html><html><body>Sign in</body></html>": "an HTML or XML page",
    b'{"error": "not found", "status": 404, "x": 1}': "but JSON",
    b"\x89HDF\r\n\x1a\n" + bytes(40): "an HDF5 file",
    b"\x1c\x00\x00\x00TFL3" + bytes(40): "a TensorFlow Lite model",
    b"\x28\x00\x00\x00ORTM" + bytes(40): "ORT format",
    bytes(range(33, 120)): "not an .onnx file",
    bytes(64): "not an .onnx file",
    b"\x08\x08\x12\x05tests" + b"\x18\x01" * 20: "is not an .onnx file: it has no graph",
}


@pytest.mark.parametrize("content", CONTENTS, ids=lambda c: repr(c[:12]))
def test_what_people_hand_over_instead_is_recognised(content: bytes, tmp_path: Path) -> None:
    """Checkpoints, downloads that needed a login, pointers: each by its name."""
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(BundleError, match=CONTENTS[content]):
        check_file(path)


def test_a_truncated_file_is_found_at_every_length(model: Path) -> None:
    """A copy that stopped anywhere is refused with what is missing."""
    whole = model.read_bytes()
    for length in (16, 50, len(whole) // 2, len(whole) - 40):
        model.write_bytes(whole[:length])
        with pytest.raises(BundleError, match=r"is cut short|not an \.onnx file"):
            check_file(model)


def test_weights_beside_the_model_are_looked_for(tmp_path: Path) -> None:
    """External data: found, missing, cut short, an LFS pointer, outside the folder; pain 38."""
    path = models.with_external_data(models.tile_cnn(), tmp_path)
    beside = tmp_path / "model.onnx.data"
    size = beside.stat().st_size
    check_file(path)
    assert list(external_data(path)) == ["model.onnx.data"]
    assert 0 < external_data(path)["model.onnx.data"] <= size
    whole = beside.read_bytes()
    beside.write_bytes(whole[:10])
    with pytest.raises(BundleError, match=r"model\.onnx\.data is cut short: 10 bytes, and the model wants \d+"):
        check_file(path)
    beside.write_bytes(b"version https://git-lfs.github.com/spec/v1\n" + whole)
    with pytest.raises(BundleError, match=r"model\.onnx\.data is a Git LFS pointer"):
        check_file(path)
    beside.unlink()
    with pytest.raises(BundleError, match=r"keeps its weights in 'model\.onnx\.data', which is missing; copy it into"):
        check_file(path)


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd"])
def test_weights_outside_the_folder_are_never_read(tmp_path: Path, location: str) -> None:
    """A model from a stranger must not name files of ours."""
    path = models.with_external_data(models.tile_cnn(), tmp_path)
    model = onnx.load(path, load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = location
    models.write(model, path)
    with pytest.raises(BundleError, match="outside its own folder"):
        check_file(path)


def test_a_hash_is_of_the_bytes(model: Path) -> None:
    """The same for a path and for its content."""
    wanted = hashlib.sha256(model.read_bytes()).hexdigest()
    assert file_sha256(model) == file_sha256(model.read_bytes()) == wanted


# ---- the passport ---------------------------------------------------------------------------------------------------


def test_a_plain_model_has_no_passport(model: Path) -> None:
    """None, and not an empty passport: other tools' metadata is not ours."""
    assert metadata_of({"author": "x"}) is None
    assert read_metadata(model) is None


def test_a_passport_is_put_in_replaced_and_read(model: Path) -> None:
    """One entry, whatever was there; every other byte of the model stays where it was."""
    whole = model.read_bytes()
    once = with_metadata(whole, Metadata(labels=("a", "ü")))
    twice = with_metadata(once, Metadata(field="tiles"))
    assert once.startswith(whole)
    assert twice.startswith(whole)
    model.write_bytes(twice)
    assert read_metadata(model) == Metadata(field="tiles")
    loaded = onnx.load(model)
    assert [entry.key for entry in loaded.metadata_props] == [KEY]
    assert metadata_of({KEY: loaded.metadata_props[0].value}) == Metadata(field="tiles")


def test_metadata_of_others_stays(tmp_path: Path) -> None:
    """Entries before and after ours are kept, in their order."""
    made = models.tile_cnn()
    for key in ("first", KEY, "last"):
        made.metadata_props.add(key=key, value="{}")
    content = with_metadata(made.SerializeToString(), Metadata())
    assert [entry.key for entry in onnx.load_from_string(content).metadata_props] == ["first", "last", KEY]


def test_a_damaged_passport_is_an_error_and_not_a_plain_model(model: Path) -> None:
    """A bundle whose metadata cannot be read must not be served without its preprocessing."""
    loaded = onnx.load(model)
    loaded.metadata_props.add(key=KEY, value="{oops")
    models.write(loaded, model)
    with pytest.raises(BundleError, match="metadata is damaged"):
        read_metadata(model)


def test_reading_needs_neither_onnx_nor_a_runtime(model: Path) -> None:
    """A fresh interpreter reads a passport without importing either."""
    model.write_bytes(with_metadata(model.read_bytes(), Metadata(field="tiles")))
    code = (
        "import sys\nfrom pathlib import Path\nfrom onbudget.engine.bundle import read_metadata\n"
        f"print(read_metadata(Path({str(model)!r})).field, [m for m in ('onnx', 'onnxruntime') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "tiles []"


# ---- writing --------------------------------------------------------------------------------------------------------


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    """The content arrives by a rename; nothing is left beside it, and permissions stay."""
    path = tmp_path / "x.onnx"
    write_atomically(path, b"one")
    path.chmod(0o640)
    before = path.stat().st_ino
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert path.stat().st_ino != before
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [p.name for p in tmp_path.iterdir()] == ["x.onnx"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """The path and the reason; an existing directory in the file's place is one."""
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "x").touch()
    with pytest.raises(UsageError, match=r"taken cannot be written: "):
        write_atomically(tmp_path / "taken", b"")
    with pytest.raises(UsageError, match=f"cannot be written: {os.strerror(2)}"):
        write_atomically(tmp_path / "none" / "x", b"")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["taken"]
