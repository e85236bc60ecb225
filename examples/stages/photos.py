"""Draws photographs of a night, a forest, a shore and snow: python photos.py FOLDER COUNT. Names tell the kind, and sizes differ."""

import pathlib
import sys

import numpy
from PIL import Image, ImageDraw

# Colours of the sky above and at the horizon, of the ground at the horizon and below, and of what stands on it.
KINDS = {
    "night": ((5, 5, 25), (30, 30, 70), (12, 16, 24), (4, 6, 8), (2, 3, 5)),
    "forest": ((150, 190, 220), (200, 220, 225), (60, 110, 50), (25, 60, 20), (15, 45, 15)),
    "shore": ((70, 140, 230), (190, 220, 245), (30, 110, 160), (220, 200, 150), (250, 250, 250)),
    "snow": ((160, 175, 195), (215, 220, 230), (235, 240, 250), (250, 250, 255), (70, 80, 90)),
}


def draw(kind, seed):
    """A picture of about 640 by 480."""
    random = numpy.random.default_rng(seed)
    width, height = int(random.integers(560, 721)), int(random.integers(420, 541))
    horizon = int(height * random.uniform(0.4, 0.6))
    above, far, near, below, things = numpy.array(KINDS[kind], dtype="f4")
    sky, ground = (numpy.linspace(0, 1, rows, dtype="f4")[:, None] for rows in (horizon, height - horizon))
    rows = numpy.concatenate([above + sky * (far - above), near + ground * (below - near)])
    image = Image.fromarray(numpy.repeat(rows[:, None].clip(0, 255).astype("u1"), width, axis=1))
    pen = ImageDraw.Draw(image)
    for _ in range(random.integers(8, 20)):
        x, y = random.integers(0, width), random.integers(horizon, height)
        tall = (y - horizon + 20) * random.uniform(0.2, 0.8)
        pen.polygon([(x - tall / 4, y), (x, y - tall), (x + tall / 4, y)], fill=tuple(things.astype(int)))
    # Grain and light as of a camera, so that it is not packed better than a photograph.
    light = random.uniform(0.85, 1.1)
    pixels = numpy.asarray(image) * light + random.normal(0, 6, (height, width, 1))
    return Image.fromarray(pixels.clip(0, 255).astype("u1"))


def save(folder, count):
    """Draws so many, of all kinds in turn, in files with the kind in their names."""
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    for i in range(count):
        kind = list(KINDS)[i % len(KINDS)]
        draw(kind, i).save(f"{folder}/{i:05}-{kind}.jpg", quality=90)


if __name__ == "__main__":
    save(sys.argv[1], int(sys.argv[2]))
