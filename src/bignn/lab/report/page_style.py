"""How the page looks: one style sheet for light, dark, phones and paper."""

from __future__ import annotations

from bignn.lab.report.marks import PALETTE

#: The palette's twins, each at least 5:1 against the dark page.
_DARK_PALETTE = ("#5aa9e6", "#ff8f4d", "#35c195", "#e295c3", "#dcbb45", "#a9d8f7")


def _series(palette: tuple[str, ...]) -> str:
    return " ".join(f"--series-{number}: {colour};" for number, colour in enumerate(palette, 1))


_LIGHT = f"""\
  --page: #fdfcfa; --raised: #f5f3ee; --text: #1d1c1a; --quiet: #5d5952;
  --rule: #dedad2; --shade: #0003; --link: #0b5c8f; --good: #dff0e2; --good-text: #1c5a2c;
  --even: #eceae4; --even-text: #4d4a44; --poor: #fae4d8; --poor-text: #86370f;
  {_series(PALETTE)}"""
_DARK = f"""\
  --page: #17181a; --raised: #202225; --text: #e7e5e0; --quiet: #a8a49c;
  --rule: #3a3c40; --shade: #000a; --link: #86c0ec; --good: #1d3a28; --good-text: #a9dfb8;
  --even: #2e3034; --even-text: #c9c6c0; --poor: #44281b; --poor-text: #f5bd9f;
  {_series(_DARK_PALETTE)}"""

STYLE = (
    """\
:root {
  color-scheme: light dark;
"""
    + _LIGHT
    + """
}
@media screen and (prefers-color-scheme: dark) {
:root {
"""
    + _DARK
    + """
}
}
* { box-sizing: border-box; }
html { scroll-behavior: smooth; scroll-padding-top: 1.5rem; -webkit-text-size-adjust: 100%; }
body {
  margin: 0 auto; padding: 0 clamp(1rem, 4vw, 3rem) 6rem; max-width: 90rem;
  background: var(--page); color: var(--text);
  font: 1rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  overflow-wrap: break-word;
}
h1, h2, .headline dd, .lead {
  font-family: Charter, "Bitstream Charter", "Iowan Old Style", "Palatino Linotype", Cambria,
    Georgia, "Liberation Serif", serif;
}
h1 {
  font-size: clamp(2rem, 1.4rem + 2.6vw, 3.1rem); line-height: 1.12; letter-spacing: -0.015em;
  font-weight: 600; margin: 0 0 1rem; max-width: 24ch; text-wrap: balance;
}
h2 { font-size: 1.6rem; line-height: 1.2; font-weight: 600; margin: 0 0 1.1rem; }
p { max-width: 44rem; margin: 0 0 1.1rem; }
a { color: var(--link); text-underline-offset: 0.2em; text-decoration-thickness: 1px; }
code, pre {
  font: 0.875em/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace;
}
pre code { font-size: 1em; }
p code, caption code, figcaption code, li code {
  background: var(--raised); padding: 0.1em 0.3em; border-radius: 3px; overflow-wrap: anywhere;
}
pre {
  max-width: 44rem; margin: 0 0 1.1rem; padding: 0.8rem 1rem;
  white-space: pre-wrap; overflow-wrap: anywhere; background: var(--raised); border-radius: 6px;
}
:focus-visible { outline: 2px solid var(--link); outline-offset: 3px; border-radius: 2px; }
.skip { position: absolute; left: -100vw; top: 0.5rem; }
.skip:focus { left: 1rem; background: var(--page); padding: 0.5rem 1rem; z-index: 3; }

header { padding: clamp(2.5rem, 8vw, 5.5rem) 0 0; }
.lead { font-size: 1.25rem; line-height: 1.5; color: var(--quiet); max-width: 42rem; margin: 0; }
.headline {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 9.5rem), 1fr));
  gap: 1.8rem clamp(1.2rem, 3vw, 2.5rem); margin: 2.8rem 0 0; padding: 1.8rem 0;
  border: solid var(--rule); border-width: 1px 0;
}
.headline div { display: flex; flex-direction: column-reverse; justify-content: flex-end; }
.headline dd {
  margin: 0 0 0.35rem; font-size: clamp(2rem, 1.6rem + 1.2vw, 2.6rem); line-height: 1.05;
  letter-spacing: -0.01em; font-variant-numeric: lining-nums;
}
.headline dt { color: var(--quiet); font-size: 0.94rem; line-height: 1.4; max-width: 30ch; }

.body { padding-top: 3rem; }
nav { margin: 0 0 3.5rem; font-size: 0.94rem; line-height: 1.4; }
nav h2 {
  font: inherit; font-size: 0.78rem; letter-spacing: 0.08em; text-transform: uppercase;
  color: var(--quiet); margin: 0 0 0.7rem;
}
nav ol { list-style: none; margin: 0; padding: 0; columns: 15rem; column-gap: 2rem; }
nav li { break-inside: avoid; padding: 0.25rem 0; }
nav a { text-decoration: none; }
nav a:hover { text-decoration: underline; }
main { min-width: 0; }
section { margin: 0 0 4.5rem; }

/* A shade at the right says that there is more; the first layer moves with the end and hides it. */
.box {
  overflow-x: auto; max-width: 100%;
  background:
    linear-gradient(to left, var(--page) 1.5rem, transparent) right / 3rem 100% no-repeat local,
    linear-gradient(to left, var(--shade), transparent) right / 0.9rem 100% no-repeat scroll;
}
section > .box { margin: 1.8rem 0 2.2rem; }
.box pre { white-space: pre; margin: 0; width: max-content; max-width: none; }
table {
  border-collapse: separate; border-spacing: 0; font-size: 0.88rem; line-height: 1.4;
  font-variant-numeric: tabular-nums lining-nums;
}
caption { text-align: left; color: var(--quiet); padding: 0 0 0.7rem; }
caption span {
  display: inline-block; position: sticky; left: 0; width: max-content;
  max-width: min(44rem, calc(100vw - clamp(2rem, 8vw, 6rem)));
}
caption b, figcaption b { color: var(--text); font-weight: 600; }
th, td { text-align: left; padding: 0.45rem 0.55rem; border-bottom: 1px solid var(--rule); }
th:first-child, td:first-child { padding-left: 0; }
thead th {
  font-weight: 600; vertical-align: bottom; border-bottom: 1.5px solid var(--text);
  border-top: 1.5px solid var(--text);
}
tbody tr:last-child > * { border-bottom: 1.5px solid var(--text); }
tbody th { font-weight: 400; }
tr > :first-child { position: sticky; left: 0; z-index: 1; background: var(--page); }
.number { text-align: right; }
table.many { font-size: 0.8rem; }
table.many th, table.many td { padding-left: 0.32rem; padding-right: 0.32rem; }
table.many th:first-child { padding-left: 0; }
.short, .verdict, td code { white-space: nowrap; }
td:not(.number) { max-width: 30rem; }
tbody th:not(.short) { min-width: min(13rem, 40vw); }
tbody tr:hover > * { background: var(--raised); }
.verdict { display: inline-block; padding: 0.05rem 0.55rem; border-radius: 4px; }
.good { background: var(--good); color: var(--good-text); }
.even { background: var(--even); color: var(--even-text); }
.poor { background: var(--poor); color: var(--poor-text); }

.figures {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 25rem), 1fr));
  gap: 2.2rem 2.5rem; margin: 1.8rem 0 2.2rem; align-items: start;
}
figure { margin: 0; min-width: 0; }
figure.wide { grid-column: 1 / -1; }
/* Type of 9 points is 13.5 pixels at most; on a phone 10, as wide figures scroll. */
svg {
  display: block; width: calc(1.5 * var(--points)); max-width: 100%; height: auto;
  overflow: visible;
}
figure.wide svg { min-width: calc(1.15 * var(--points)); }
figcaption {
  color: var(--quiet); font-size: 0.92rem; line-height: 1.5; max-width: 44rem; margin-top: 0.6rem;
}
details { margin-top: 0.5rem; font-size: 0.92rem; }
summary { color: var(--quiet); cursor: pointer; width: max-content; max-width: 100%; }
details .box { margin-top: 0.8rem; }

@media (min-width: 70rem) {
  .body { display: grid; grid-template-columns: 12.5rem minmax(0, 1fr); gap: 2.5rem; }
  nav {
    position: sticky; top: 2rem; align-self: start; max-height: calc(100vh - 4rem);
    overflow-y: auto;
  }
  nav ol { columns: auto; }
  caption span { max-width: 44rem; }
}
@media (max-width: 40rem) {
  table { font-size: 0.86rem; }
  th, td { padding: 0.45rem 0.6rem; }
  tr > :first-child { max-width: 46vw; padding-right: 0.7rem; box-shadow: 1px 0 0 var(--rule); }
}
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
@media print {
  :root { color-scheme: light; --page: #fff; }
  body { font-size: 9.5pt; max-width: none; padding: 0; }
  nav, .skip, details { display: none; }
  header { padding: 0; }
  section { margin-bottom: 2rem; }
  h2 { break-after: avoid; }
  .box { overflow: visible; background: none; }
  table { font-size: 7.5pt; }
  td, th { padding: 0.15rem 0.4rem; white-space: normal !important; }
  tr, figure, .headline { break-inside: avoid; }
  .verdict { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
)
