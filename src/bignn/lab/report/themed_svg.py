"""Matplotlib's SVG made part of a page: its colours and font the page's, its ids its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"


def themed(svg: str, caption: str, prefix: str, palette: Sequence[str]) -> str:
    """The ``<svg>`` element for HTML.

    Black becomes ``currentColor`` and the n-th colour of ``palette`` ``var(--series-n)``. What is
    drawn needs no style sheet: matplotlib's own, which would be the whole page's, is taken out.
    """
    # ElementTree reads no external entities; and this is our own text, not a stranger's.
    root = ElementTree.fromstring(svg)
    colours = {colour: f"var(--series-{n})" for n, colour in enumerate(palette, 1)}
    colours["#000000"] = "currentColor"
    place = re.sub(r"[^A-Za-z0-9]+", "-", prefix).strip("-") or "figure"
    for parent in root.iter():
        for child in list(parent):
            if child.tag in (f"{_SVG}metadata", f"{_SVG}title", f"{_SVG}style"):
                parent.remove(child)
    used = {
        name
        for element in root.iter()
        for value in element.attrib.values()
        for name in re.findall(r"#([\w.-]+)", value)
    }
    for element in root.iter():
        if (name := element.get("id")) is not None:
            if name in used:
                element.set("id", f"{place}-{name}")
            else:
                del element.attrib["id"]
        for key, value in list(element.attrib.items()):
            if key == "style":
                element.set(key, _style(value, colours, place))
            elif key == _HREF:
                del element.attrib[key]
                element.set("href", f"#{place}-{value.removeprefix('#')}")
            elif "url(#" in value:
                element.set(key, value.replace("url(#", f"url(#{place}-"))
            elif key == "transform" and value.startswith("rotate(-0 "):
                del element.attrib[key]
    width = float(root.attrib["viewBox"].split()[2])
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.attrib |= {
        "role": "img",
        "aria-label": caption,
        "fill": "currentColor",
        "stroke-linejoin": "round",
        "style": f"--points:{width:.0f}px",  # the page says how large it is drawn
    }
    _tidy(root)
    ElementTree.register_namespace("", _SVG.strip("{}"))
    return ElementTree.tostring(root, encoding="unicode")


def _style(style: str, colours: dict[str, str], place: str) -> str:
    kept = []
    for declaration in filter(None, (part.strip() for part in style.split(";"))):
        name, _, value = (part.strip() for part in declaration.partition(":"))
        if name == "font-family":
            continue
        value = colours.get(value, value).replace("url(#", f"url(#{place}-")
        kept.append(f"{name}:{value}")
    return ";".join(kept)


def _tidy(root: ElementTree.Element) -> None:
    """Takes out the blanks that only indent."""
    for element in root.iter():
        if element.text is not None and not element.text.strip():
            element.text = None
        element.tail = None
        if "d" in element.attrib:
            element.set("d", " ".join(element.attrib["d"].split()))
