"""One SVG that moves, out of pictures of the screen: what stays as it is from picture to picture is drawn once.

Animated by SMIL (``<animate>``), which browsers play in an ``<img>`` too, as on a page of GitHub; where nothing plays
it, the last picture is seen.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from typing import NamedTuple

_STYLE = re.compile(r"\.t-(r\d+) \{ ([^}]*?) \}")
_RECT = re.compile(r'<rect fill="([^"]+)" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"[^>]*/>')
_TEXT = re.compile(
    r'<text class="t-(r\d+)" (x="[\d.]+" y="[\d.]+" textLength="[\d.]+") clip-path="[^"]*">(.*?)</text>', re.DOTALL
)
_BODY = '<g transform="translate(9, 41)"'


class Frame(NamedTuple):
    """One picture, as ``normalised`` of the tests gives it, and for how long it is seen."""

    svg: str
    seconds: float


def animated(frames: list[Frame]) -> str:
    """The frames one after the other, for ever."""
    ends = list(itertools.accumulate(frame.seconds for frame in frames))
    styles: dict[str, str] = {}
    pieces: dict[str, set[int]] = defaultdict(set)
    for number, frame in enumerate(frames):
        for piece in drawn(frame.svg, styles):
            pieces[piece].add(number)
    groups: dict[tuple[bool, tuple[int, ...]], list[str]] = defaultdict(list)
    for piece, numbers in pieces.items():
        groups[piece.startswith("<text"), tuple(sorted(numbers))].append(piece)
    parts = [_group("".join(groups[key]), key[1], ends) for key in sorted(groups)]  # text over what is behind it
    head, _, body = frames[-1].svg.partition("<defs>")
    chrome = body.partition("</defs>")[2].partition(_BODY)[0].strip()
    rules = "".join(f".{name} {{ {css} }}\n" for css, name in styles.items())
    head = re.sub(r"\s*\.t-r\d+ \{.*</style>", lambda _: f"\n{rules}</style>", head, flags=re.DOTALL)
    inner = "\n".join(parts)
    return f'{head}{chrome}\n<g transform="translate(9, 41)" class="t-matrix">\n{inner}\n</g>\n</svg>\n'


def drawn(svg: str, styles: dict[str, str]) -> list[str]:
    """What a picture draws, rectangles and pieces of text; ``styles`` gives each style a name for all pictures."""
    own = {name: styles.setdefault(css, f"s{len(styles)}") for name, css in _STYLE.findall(svg)}
    body = svg.partition(_BODY)[2]
    joined: list[tuple[str, float, str, float, str]] = []
    for fill, x, y, width, height in _RECT.findall(body):
        before = joined[-1] if joined else None
        if before is not None and (before[0], before[2]) == (fill, y):  # neighbours of one colour
            joined[-1] = (fill, before[1], y, float(x) + float(width), height)
        else:
            joined.append((fill, float(x), y, float(x) + float(width), height))
    rects = [
        f'<rect fill="{fill}" x="{left:g}" y="{y}" width="{right - left:g}" height="{height}"/>'
        for fill, left, y, right, height in joined
    ]
    texts = [
        f'<text class="{own[style]}" {place}>{words.replace("&#160;", chr(0xA0))}</text>'
        for style, place, words in _TEXT.findall(body)
        if words.strip()
    ]
    return [*rects, *texts]


def _group(content: str, numbers: tuple[int, ...], ends: list[float]) -> str:
    """What is seen in the same pictures, and when that is."""
    if len(numbers) == len(ends):
        return content
    changes = [at for at in range(len(ends)) if at == 0 or (at in numbers) != (at - 1 in numbers)]
    times = ";".join(f"{ends[at - 1] / ends[-1]:.4f}" if at else "0" for at in changes)
    values = ";".join("visible" if at in numbers else "hidden" for at in changes)
    still = "" if len(ends) - 1 in numbers else ' visibility="hidden"'
    return (
        f'<g{still}><animate attributeName="visibility" calcMode="discrete" dur="{ends[-1]:g}s" '
        f'repeatCount="indefinite" keyTimes="{times}" values="{values}"/>{content}</g>'
    )
