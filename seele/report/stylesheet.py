"""The page's style sheet: one column of text, light and dark, readable on paper and on a telephone."""

CSS = """
:root {
  color-scheme: light dark;
  --page: #fbfbfa; --card: #ffffff; --ink: #24292f; --soft: #636b74; --line: #e2e4e7;
  --hint: #fff0c2; --hint-ink: #5c4300; --good: #0b7a4b; --bad: #b3402a; --accent: #0072b2;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #16181b; --card: #1e2125; --ink: #e4e6e9; --soft: #9aa2ab; --line: #33383e;
    --hint: #4a3a10; --hint-ink: #ffe3a0; --good: #4cc38a; --bad: #ff8b73; --accent: #56b4e9;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 2.5rem 1.25rem 4rem; max-width: 60rem; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
} h1 { font-size: 1.7rem; line-height: 1.2; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 1.2rem;
margin: 2.75rem 0 .5rem; padding-top: 1.25rem; border-top: 1px solid var(--line); } p { margin: .4rem 0 1rem;
max-width: 46rem; } .soft, figcaption, th { color: var(--soft); } .tiles { display: grid;
grid-template-columns: repeat(auto-fit, minmax(10.5rem, 1fr)); gap: .75rem; margin: 1.5rem 0 0; } .tile {
background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .8rem 1rem; } .tile b {
display: block; font-size: 1.45rem; font-weight: 650; font-variant-numeric: tabular-nums; } .tile span {
color: var(--soft); font-size: .85rem; } .notes { border-left: 3px solid #e69f00; background: var(--card);
padding: .6rem 1rem; margin: 1.5rem 0 0; } .notes ul { margin: 0; padding-left: 1.1rem; } .scroll {
overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .92rem; font-variant-numeric:
tabular-nums; } th, td { padding: .4rem .7rem; border-bottom: 1px solid var(--line); text-align: left;
vertical-align: top; } th { font-weight: 500; white-space: nowrap; } td.text { overflow-wrap: anywhere; }
.number { text-align: right; } figure { margin: 1rem 0; } figure img { width: 100%; height: auto; background:
#fff; border: 1px solid var(--line); border-radius: .6rem; padding: .6rem; } figcaption { font-size: .88rem;
max-width: 46rem; } .example { background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
padding: .8rem 1rem; margin: .9rem 0; } .example header { display: flex; flex-wrap: wrap; gap: .3rem 1rem;
font-size: .85rem; color: var(--soft); } .good { color: var(--good); font-weight: 600; } .bad { color:
var(--bad); font-weight: 600; } pre {
  margin: .6rem 0 0; white-space: pre-wrap; overflow-wrap: anywhere;
  font: .86rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
}
pre.question { color: var(--soft); }
mark { background: var(--hint); color: var(--hint-ink); border-radius: .2rem; padding: 0 .1rem; }
details { margin: .75rem 0; }
summary { cursor: pointer; color: var(--accent); }
@media print { body { max-width: none; } .example, figure { break-inside: avoid; } }
"""
