"""Everything from nothing: the scene → weights → model.onnx → the bundle and the tiles that ship inside the package.

python make.py                   all of it, about a minute
python make.py --keep-weights    the same with weights.pt as it stands, without training
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import train
from data import HELD_OUT, LABELS, STRIDES, Tiles, cut, fetch, read
from model import MEAN, STD
from PIL import Image

from onbudget.engine.session import load_runner

HERE = Path(__file__).resolve().parent
PACKAGED = HERE.parents[1] / "src" / "onbudget" / "data"
EACH = 3  # tiles of each label that ship


def recipe() -> dict[str, object]:
    """The preprocessing in Hugging Face's form; MEAN and STD come from model.py, which training uses too."""
    return {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": 64, "width": 64},
        "resample": 3,  # bicubic
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(MEAN),
        "image_std": list(STD),
    }


def onbudget(*arguments: str) -> None:
    """Run one of our own commands here; SystemExit with its exit code where it fails."""
    print("onbudget " + " ".join(arguments), file=sys.stderr)
    done = subprocess.run([sys.executable, "-m", "onbudget", *arguments], cwd=HERE)
    if done.returncode:
        raise SystemExit(done.returncode)


def make_bundle(bundle: Path) -> None:
    """weights.pt → build/model.onnx → the bundle, each through the command that a user has."""
    (HERE / "recipe.json").write_text(json.dumps(recipe(), indent=2) + "\n")
    (HERE / "labels.txt").write_text("".join(f"{name}\n" for name in LABELS))
    (HERE / "build").mkdir(exist_ok=True)
    names = ("--input-name", "tiles", "--output-name", "logits")
    export = ("export", "model:build", "--weights", "weights.pt", "--example", "1x3x64x64", *names)
    onbudget(*export, "-o", "build/model.onnx")
    bundling = ("bundle", "build/model.onnx", "--recipe", "recipe.json", "--labels", "labels.txt", "--field", "tiles")
    onbudget(*bundling, "-o", str(bundle))
    onbudget("check", str(bundle))


def choose(tiles: Tiles) -> list[int]:
    """EACH places of every label, evenly spaced in reading order: chosen by position, never by the model's answers."""
    chosen: list[int] = []
    for place in range(len(LABELS)):
        these = np.flatnonzero(tiles.truth == place)
        chosen += [int(these[(2 * k + 1) * len(these) // (2 * EACH)]) for k in range(EACH)]
    return chosen


def ship(tiles: Tiles, bundle: Path, folder: Path) -> None:
    """Write the chosen tiles as PNGs, and tiles.json with what each shows and what the bundle answers."""
    runner = load_runner(bundle)
    chosen = choose(tiles)
    (answers,) = runner.run({runner.inputs[0].name: tiles.pixels[chosen]}, ["probabilities"])
    listed = []
    (folder / "tiles").mkdir(exist_ok=True)
    for n, (place, row) in enumerate(zip(chosen, answers, strict=True)):
        truth = LABELS[tiles.truth[place]]
        name = f"{truth}-{n % EACH + 1}.png"
        Image.fromarray(tiles.pixels[place]).save(folder / "tiles" / name, optimize=True)
        best = int(row.argmax())
        listed.append(
            {
                "file": f"tiles/{name}",
                "row": int(tiles.corners[place][0]),
                "column": int(tiles.corners[place][1]),
                "truth": truth,
                "label": LABELS[best],
                "confidence": round(float(row[best]), 4),
            }
        )
    (folder / "tiles.json").write_text(json.dumps({"held_out": listed}, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep-weights", action="store_true", help="do not train; take weights.pt as it stands")
    if not parser.parse_args().keep_weights:
        train.save(*train.learn(train.SEED))
    PACKAGED.mkdir(exist_ok=True)
    bundle = PACKAGED / "tiles.onnx"
    make_bundle(bundle)
    ship(cut(read(fetch()), HELD_OUT, STRIDES[1]).only_clear(), bundle, PACKAGED)
    size = sum(path.stat().st_size for path in PACKAGED.rglob("*") if path.is_file())
    print(f"{PACKAGED}: {size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
