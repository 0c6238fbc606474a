"""The style sheet of the page of `soliton complete --html`.

One hue, orange, from light to strong: it is told apart with every kind of colour vision, and in
grey. Each class has its own underline as well, for print and for those who see no colour.
"""

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --faint: #57606a; --paper: #fff; --line: #d0d7de;
  --c1: #fff1d6; --c2: #ffdc9a; --c3: #ffb84d; --c4: #f28e1c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --faint: #9aa4af; --paper: #0d1117;
  --line: #30363d; --c1: #33270f; --c2: #553c0c; --c3: #7a5200; --c4: #9c5f00; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.4rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1rem 0 .5rem; }
.lead, .note, .prompt { color: var(--faint); }
.lead { margin: .25rem 0 1rem; }
.note { font-size: .85rem; }
.text { font-size: 1.15rem; line-height: 2; white-space: pre-wrap; overflow-wrap: anywhere;
  border: 1px solid var(--line); border-radius: .4rem; padding: .6rem .9rem; }
.t { color: inherit; border-radius: .15rem; text-decoration: none;
  text-underline-offset: .25em; text-decoration-thickness: .1em; }
.c1 { background: var(--c1); text-decoration: underline dotted; }
.c2 { background: var(--c2); text-decoration: underline dashed; }
.c3 { background: var(--c3); text-decoration: underline solid; }
.c4 { background: var(--c4); text-decoration: underline double; font-weight: 600; }
a.t:hover, a.t:focus-visible { outline: 2px solid currentcolor; outline-offset: 1px; }
a.line::before { content: "\\21b5"; color: var(--faint); font-weight: 400; }
.legend { display: flex; flex-wrap: wrap; gap: .4rem 1rem; list-style: none; margin: 0 0 .8rem;
  padding: 0; font-size: .9rem; }
.legend .t { padding: .1rem .3rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .85rem;
  font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .2rem .6rem; border-bottom: 1px solid var(--line);
  vertical-align: top; }
th:nth-child(2), td:nth-child(2), th:last-child, td:last-child { text-align: left; }
td code { white-space: pre; margin-right: .8em; }
td:last-child { min-width: 18rem; }
tr:target { outline: 2px solid currentcolor; }
tr.end td { color: var(--faint); }
code, pre { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; border: 1px solid var(--line);
  border-radius: .4rem; padding: .6rem .9rem; font-size: .85rem; margin: 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: 0;
  font-size: .9rem; }
dt { color: var(--faint); }
dd { margin: 0; overflow-wrap: anywhere; }
@media print {
  :root { --ink: #000; --faint: #444; --paper: #fff; --line: #999; --c1: #fff1d6; --c2: #ffdc9a;
    --c3: #ffb84d; --c4: #f28e1c; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  main { max-width: none; padding: 0; }
  body { font-size: 11pt; }
  h2, h3 { break-after: avoid; }
  pre, dl, .legend, tr { break-inside: avoid; }
  .scroll { overflow: visible; }
  table { font-size: 8pt; }
  th, td { padding: .1rem .4rem; }
  thead { display: table-header-group; }
}
"""
