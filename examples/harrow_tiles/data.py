"""Real 64×64 satellite tiles, with labels from infrared bands that the classifier never sees.

The pictures are cut from one Landsat 7 scene (Olinda and Recife, Brazil; 352×349 pixels of 28.5 m, six bands) which
Debian ships inside the package `r-cran-stars` (Apache-2.0). The package is downloaded and unpacked, never installed.

    python data.py          download the scene once, and print how many tiles of each kind there are

**Labels.** Every pixel is water, vegetation or built-up by two indices, each of an infrared band and a visible one:
water where (green - band 5) / (green + band 5) > 0; else vegetation where (band 4 - red) / (band 4 + red) > 0.1, which
is the valley between the two humps of its histogram; else built-up. A tile's label follows from its shares alone (see
`label`), before any model is trained. Tiles near a threshold are ambiguous: they are never trained on, and are judged
apart.

**Areas.** The scene is split into full-width bands of rows. No tile crosses from one band to the next, so no held-out
pixel is ever trained on. Inside a band tiles overlap: 72 tiles of one band are not 72 independent pictures.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tifffile

PACKAGE = "r-cran-stars"
TIF = "usr/lib/R/site-library/stars/tif/L7_ETMs.tif"
SHA256 = "3b722bf4470144b6691bf720bac08f47c99464acff4dd258252891c06312678e"

LABELS = ("water", "coast", "vegetation", "built-up")
SIZE = 64
SCENE = (352, 349)  # rows, columns
HELD_OUT = ((80, 160), (288, 352))  # bands of rows, [first, last)
TRAINING = ((0, 80), (160, 288))  # all the others
STRIDES = (4, 8)  # pixels from one tile to the next, in training and held out
WATER, VEGETATION = 0.0, 0.1  # thresholds of the two indices
BLUE, GREEN, RED, BAND_4, BAND_5 = range(5)  # places in the file; band 4 is near infrared, band 5 shortwave infrared

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Tiles:
    """Tiles of some bands: `pixels` (n, 64, 64, 3) RGB, `truth` (n,) places in LABELS, `corners` (n, 2) row and column.

    `clear` (n,) is false for ambiguous tiles, whose truth is a matter of a few pixels.
    """

    pixels: Bytes
    truth: npt.NDArray[np.int64]
    corners: npt.NDArray[np.int64]
    clear: npt.NDArray[np.bool_]

    def only_clear(self) -> Tiles:
        """The same without the ambiguous ones."""
        return Tiles(*(getattr(self, f.name)[self.clear] for f in fields(self)))

    def counts(self) -> dict[str, int]:
        """How many tiles there are of each label."""
        return {name: int((self.truth == i).sum()) for i, name in enumerate(LABELS)}


# ---- the scene ------------------------------------------------------------------------------------------------------


def cache() -> Path:
    """Where the scene is kept: $HARROW_TILES_CACHE, or a folder among the user's caches."""
    told = os.environ.get("HARROW_TILES_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(told) if told else home / "onbudget" / "harrow_tiles"


def fetch() -> Path:
    """The scene's file, downloaded unless it is there already. SystemExit where that fails or the bytes are others."""
    tif = cache() / "L7_ETMs.tif"
    if not tif.exists():
        tif.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=tif.parent) as folder:
            subprocess.run(["dpkg-deb", "-x", str(_download(Path(folder))), folder], check=True)
            (Path(folder) / TIF).replace(tif)
    found = hashlib.sha256(tif.read_bytes()).hexdigest()
    if found != SHA256:
        raise SystemExit(
            f"{tif} is not the scene that these labels were made for: sha256 {found}; delete it, try again"
        )
    return tif


def _download(folder: Path) -> Path:
    """The .deb, through apt-get; with package lists of our own where the system's are missing or old."""
    print(f"downloading {PACKAGE} (3.8 MB) with apt-get", file=sys.stderr)
    (folder / "archives" / "partial").mkdir(parents=True)
    (folder / "lists" / "partial").mkdir(parents=True)
    # Root may download into root's own folders, and nobody needs to be root.
    ours = ["apt-get", "-q", "-o", "APT::Sandbox::User=", "-o", f"Dir::Cache={folder}"]
    done = subprocess.run([*ours, "download", PACKAGE], cwd=folder, capture_output=True)
    if done.returncode:
        ours += ["-o", f"Dir::State::lists={folder / 'lists'}"]
        print("the system's package lists did not do; reading our own", file=sys.stderr)
        try:
            subprocess.run([*ours, "update"], check=True, stdout=sys.stderr)
            subprocess.run([*ours, "download", PACKAGE], cwd=folder, check=True, stdout=sys.stderr)
        except (OSError, subprocess.CalledProcessError) as error:
            raise SystemExit(
                f"{PACKAGE} cannot be downloaded: {error}; this needs Debian's or Ubuntu's apt-get"
            ) from error
    return next(folder.glob(f"{PACKAGE}_*.deb"))


def read(path: Path) -> Bytes:
    """The scene, (rows, columns, 6) uint8. SystemExit where it has another shape."""
    scene: Bytes = tifffile.imread(path)
    if scene.shape != (*SCENE, 6) or scene.dtype != np.uint8:
        raise SystemExit(f"{path}: a scene of {scene.shape} {scene.dtype}, and (352, 349, 6) uint8 was expected")
    return scene


# ---- labels ---------------------------------------------------------------------------------------------------------


def ground(scene: Bytes) -> npt.NDArray[np.int64]:
    """What each pixel shows, (rows, columns): 0 water, 1 vegetation, 2 built-up."""
    band = scene.astype(np.float64)
    wet = _index(band[..., GREEN], band[..., BAND_5]) > WATER
    green = _index(band[..., BAND_4], band[..., RED]) > VEGETATION
    return np.where(wet, 0, np.where(green, 1, 2))


def _index(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return (a - b) / np.maximum(a + b, 1)


def label(water: float, vegetation: float, built_up: float) -> tuple[int, bool]:
    """A tile's place in LABELS from its shares, and whether it is clear.

    From 75 % water on it is water, from 15 % on coast, else what there is more of, vegetation or built-up. It is clear
    where no threshold is near: with 80 % water and more; with 20 to 70 %; with less than 10 %, where vegetation or
    built-up has at least 60 %.
    """
    if water >= 0.75:
        return 0, water >= 0.8
    if water >= 0.15:
        return 1, 0.2 <= water <= 0.7
    land = 2 if vegetation >= built_up else 3
    return land, water < 0.1 and max(vegetation, built_up) >= 0.6


# ---- tiles ----------------------------------------------------------------------------------------------------------


def corners(bands: tuple[tuple[int, int], ...], stride: int) -> Iterator[tuple[int, int]]:
    """(row, column) of the upper left pixel of every tile that lies wholly inside one of the bands."""
    for first, last in bands:
        for row in range(first, last - SIZE + 1, stride):
            for column in range(0, SCENE[1] - SIZE + 1, stride):
                yield row, column


def cut(scene: Bytes, bands: tuple[tuple[int, int], ...], stride: int) -> Tiles:
    """All tiles of these bands, `stride` pixels apart, in reading order."""
    kinds = ground(scene)
    rgb = scene[..., [RED, GREEN, BLUE]]
    places = list(corners(bands, stride))
    windows = [np.s_[row : row + SIZE, column : column + SIZE] for row, column in places]
    labels = [label(*(np.bincount(kinds[window].ravel(), minlength=3) / SIZE**2)) for window in windows]
    return Tiles(
        pixels=np.stack([rgb[window] for window in windows]),
        truth=np.array([place for place, _ in labels]),
        corners=np.array(places),
        clear=np.array([clear for _, clear in labels]),
    )


def main() -> None:
    scene = read(fetch())
    for name, bands, stride in (("training", TRAINING, STRIDES[0]), ("held out", HELD_OUT, STRIDES[1])):
        tiles = cut(scene, bands, stride)
        clear = tiles.only_clear()
        told = ", ".join(f"{count} {kind}" for kind, count in clear.counts().items())
        ambiguous = len(tiles.truth) - len(clear.truth)
        print(f"{name}, every {stride} pixels: {len(clear.truth)} clear tiles ({told}), {ambiguous} ambiguous ones")


if __name__ == "__main__":
    main()
