"""Draws what a terminal of 80×24 showed as an SVG: python picture.py BYTES SVG. Needs pyte."""

import html
import sys

import pyte

WIDTH, HEIGHT = 8.4, 18


def main(source: str, target: str) -> None:
    screen = pyte.Screen(80, 24)
    with open(source, "rb") as shown:
        pyte.ByteStream(screen).feed(shown.read())
    rows = []
    for y in range(screen.lines):
        line = screen.buffer[y]
        if line[0].reverse:
            rows.append(f'<rect y="{y * HEIGHT}" width="100%" height="{HEIGHT}" fill="#ddd"/>')
        fill = "#111" if line[0].reverse else {"red": "#f66"}.get(line[0].fg, "#ddd")
        weight = ' font-weight="bold"' if line[0].bold else ""
        text = html.escape(screen.display[y].rstrip())
        rows.append(f'<text x="4" y="{y * HEIGHT + 13}" fill="{fill}"{weight} xml:space="preserve">{text}</text>')
    with open(target, "w", encoding="utf-8") as out:
        out.write(
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{80 * WIDTH:.0f}" height="{24 * HEIGHT}" font-family="monospace" font-size="14">'
            f'<rect width="100%" height="100%" fill="#111"/>{"".join(rows)}</svg>\n'
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
