"""Changes matplotlib's SVG so that its colours follow a theme: inside a page, or as a file."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from bignn.lab.report.palette import DARK, LIGHT

_SVG = "{http://www.w3.org/2000/svg}"
_FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_HREF = "{http://www.w3.org/1999/xlink}href"


def inline_svg(svg: str, caption: str, prefix: str) -> str:
    """Return the ``<svg>`` element for HTML.

    Black becomes ``currentColor`` and the n-th colour of :data:`LIGHT` ``var(--series-n)``.
    Matplotlib's own style sheet, which would apply to the whole page, is taken out.
    """
    return _text(_themed(svg, caption, prefix))


def svg_file(svg: str, caption: str) -> str:
    """Return the text of an SVG file that is light on light screens and dark on dark ones."""
    root = _themed(svg, caption, "")
    style = ElementTree.Element(f"{_SVG}style")
    style.text = (
        f":root {{ {LIGHT.css} color: var(--text); font-family: {_FONTS}; }}"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {DARK.css} }} }}"
    )
    _, _, width, height = root.attrib["viewBox"].split()
    page = {"width": width, "height": height, "style": "fill:var(--page)"}
    root.insert(0, ElementTree.Element(f"{_SVG}rect", page))
    root.insert(0, style)
    root.attrib |= {"width": f"{width}pt", "height": f"{height}pt"}
    return _text(root).replace("><g", ">\n<g") + "\n"


def _themed(svg: str, caption: str, prefix: str) -> ElementTree.Element:
    # ElementTree reads no external entities, and the text is matplotlib's, not a stranger's.
    root = ElementTree.fromstring(svg)
    colours = {colour: f"var(--series-{n})" for n, colour in enumerate(LIGHT.series, 1)}
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
        "style": f"--points:{width:.0f}px",  # the page's style sheet scales it
    }
    _tidy(root)
    return root


def _text(root: ElementTree.Element) -> str:
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
    """Remove the blanks that only indent."""
    for element in root.iter():
        if element.text is not None and not element.text.strip():
            element.text = None
        element.tail = None
        if "d" in element.attrib:
            element.set("d", " ".join(element.attrib["d"].split()))
