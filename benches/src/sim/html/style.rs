//! How the page looks.

/// Charts keep their light panel in the dark: their colours are chosen for white.
pub(super) const CSS: &str = "\
:root{color-scheme:light dark;--ink:#1d2126;--soft:#626a75;--page:#fbfbfc;--rule:#dfe2e7;--good:#1b7f5c;--bad:#b3261e}\
@media(prefers-color-scheme:dark){:root{--ink:#e4e6ea;--soft:#9aa2ad;--page:#15181c;--rule:#343a42;--good:#6fc7a3;--bad:#f28b82}}\
*{box-sizing:border-box}\
body{margin:0 auto;padding:2.5rem 2rem 4rem;max-width:2000px;background:var(--page);color:var(--ink);\
font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;font-variant-numeric:tabular-nums}\
h1{font-size:1.7rem;font-weight:650;line-height:1.2;margin:0 0 .75rem}\
h2{font-size:1.25rem;font-weight:650;margin:0 0 .25rem}\
h3{font-size:1.05rem;font-weight:650;margin:0}\
p{margin:.25rem 0;max-width:75ch}body>header p{max-width:none}\
code{font:.9em/1.4 ui-monospace,'DejaVu Sans Mono',monospace;overflow-wrap:anywhere}\
.note,caption,.drops small{color:var(--soft)}\
section{margin-top:3rem}\
section.scenario{border-top:1px solid var(--rule);padding-top:2rem;content-visibility:auto;contain-intrinsic-size:auto 1100px}\
nav{margin-top:1.5rem;font-size:.87rem;line-height:1.9}\
nav a{color:inherit;margin-right:1.2em;white-space:nowrap;text-underline-offset:.2em;text-decoration-color:var(--rule)}\
nav a.bad{color:var(--bad)}\
.score{display:flex;gap:2.5rem;margin:.75rem 0 1rem}\
.score div{color:var(--soft)}\
.score b{display:block;color:var(--ink);font-size:2rem;font-weight:600;line-height:1.1}\
.score .good b,.good{color:var(--good)}\
.score .bad b,.bad{color:var(--bad)}\
.wide{overflow-x:auto}\
table{border-collapse:collapse}\
.list{font-size:.87rem}\
.list th{text-align:left;font-weight:600;color:var(--soft)}\
.list td,.list th{padding:.3rem 1.2rem .3rem 0;border-bottom:1px solid var(--rule);vertical-align:top}\
.list .number{text-align:right;white-space:nowrap}\
.arms{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(420px,100%),1fr));gap:0 2rem;margin-top:1.25rem}\
article{display:grid;grid-template-rows:subgrid;grid-row:span 9;row-gap:.9rem;align-content:start;min-width:0;max-width:520px;margin-bottom:2.5rem}\
article>header{grid-row:1}article>.drops{grid-row:2}.load{grid-row:3}.threshold{grid-row:4}.limit{grid-row:5}.success{grid-row:6}.pressure{grid-row:7}.wait{grid-row:8}.endings{grid-row:9}\
article .note{font-size:.82rem;line-height:1.35}\
.drops{width:100%;table-layout:fixed;font-size:.82rem;align-self:start;border-collapse:separate;border-spacing:2px}\
.drops caption{text-align:left;padding-bottom:.35rem;line-height:1.35}.drops caption b{color:var(--ink);font-weight:600}\
.drops th{font-weight:500;padding:.1rem .2rem}\
.drops th:first-child{width:24%;text-align:left;overflow-wrap:anywhere;line-height:1.2}\
.drops td{text-align:center;padding:.22rem 0 .18rem;line-height:1.15;border-radius:3px;color:#16191d;white-space:nowrap}\
.drops td small{display:block;font-size:.82em;color:#16191d;opacity:.72}\
.drops td small.gap{opacity:1;font-weight:700}\
.drops td.none{color:var(--soft)}\
.drops th i{display:inline-block;width:.6em;height:.6em;border-radius:2px;margin-right:.3em}\
figure{margin:0;background:#fff;color:#1d2126;border:1px solid var(--rule);border-radius:6px;padding:.55rem .4rem .2rem}\
figcaption{font-size:.77rem;line-height:1.5;padding:0 .35rem .15rem;color:#4d545e}\
figcaption b{color:#1d2126;font-weight:600}figcaption .what{margin-right:.5em}\
figcaption em{display:block;color:#8a4b00}\
.key{white-space:nowrap;margin-right:.45em}\
.key i{display:inline-block;width:.75em;height:.75em;border-radius:2px;margin-right:.3em;vertical-align:-.05em}\
.key i.scale{width:4.5em;margin:0 .35em}\
svg{display:block;width:100%;height:auto}\
svg text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}\
dl.endings{margin:0;font-size:.82rem;line-height:1.45;display:grid;grid-template-columns:4.5rem 1fr;gap:.15rem .8rem;align-content:start}\
dt{color:var(--soft)}dd{margin:0}dd b{font-weight:600}\
summary{cursor:pointer;font-weight:600}\
@media print{section.scenario{content-visibility:visible}}";
