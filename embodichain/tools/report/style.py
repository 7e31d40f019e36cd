"""How reports look: light or dark, as the reader's system is, and printable."""

STYLE = """
:root{--back:#fff;--card:#f6f7f9;--text:#1c2128;--dim:#5b6470;--line:#d9dde3}
@media(prefers-color-scheme:dark){:root{--back:#14171c;--card:#1d2128;--text:#e6e9ee;--dim:#9aa4b2;--line:#343b46}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--text);font:15px/1.5 system-ui,sans-serif}
header,main{max-width:1060px;margin:0 auto;padding:0 20px}
header{padding-top:28px}
h1{font-size:28px;margin:0}
h2{font-size:19px;margin:34px 0 10px;border-bottom:1px solid var(--line);padding-bottom:4px}
p{margin:6px 0;color:var(--dim)}
nav{display:flex;flex-wrap:wrap;gap:4px 14px;margin-top:8px}
a{color:#0072b2}
@media(prefers-color-scheme:dark){a{color:#56b4e9}}
.tiles,.cards{display:grid;gap:14px}
.tiles{grid-template-columns:repeat(auto-fit,minmax(170px,1fr))}
.cards{grid-template-columns:repeat(auto-fill,minmax(min(440px,100%),1fr))}
.tile,.card,figure{background:var(--card);border:1px solid var(--line);border-radius:8px;margin:0;padding:12px}
.tile b{display:block;font-size:24px}
.tile span,figcaption{color:var(--dim);font-size:13px}
.plot b{font-size:13px}
.chart{width:100%;height:auto;display:block;color:var(--dim)}
.chart path{stroke-linejoin:round}
.legend{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:12px;color:var(--dim);margin:2px 0 0 12%}
.legend i{display:inline-block;width:12px;height:4px;border-radius:2px;margin-right:5px;vertical-align:middle}
video{width:100%;border-radius:6px;background:#000}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:14px;min-width:50%}
th,td{text-align:left;padding:4px 14px 4px 0;border-bottom:1px solid var(--line);vertical-align:top}
td{font-variant-numeric:tabular-nums}
th{color:var(--dim);font-weight:500}
td.bar{width:220px}td.bar span{display:block;height:10px;border-radius:3px;margin-top:6px}
pre{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:8px 12px;overflow-x:auto}
code{font-size:13px}
summary{cursor:pointer;margin:10px 0}
main{padding-bottom:60px}
"""
