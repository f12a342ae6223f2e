"""The one style sheet: dark and light by the reader's own setting, from phone to desktop, nothing loaded."""

from __future__ import annotations

_BASE = """
:root{color-scheme:light dark;--paper:#fbfbf9;--card:#fff;--ink:#1c1f23;--soft:#565c66;--line:#d9dbdf;--accent:#0b5cad;
--band:#0b5cad22;--past:#6b728066;--good:#0f6b3a;--wrong:#a81c1c;--odd:#8a4b00;--hazard:#ffd23f;--on-hazard:#1c1600;
--heat:168 28 28}
@media (prefers-color-scheme:dark){:root{--paper:#14171b;--card:#1c2026;--ink:#e8eaed;--soft:#a9b1bc;--line:#353b44;
--accent:#7db8f5;--band:#7db8f52e;--past:#a9b1bc66;--good:#6fd39b;--wrong:#ff9a92;--odd:#f2b661;--heat:255 120 110}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.45 system-ui,"DejaVu Sans",sans-serif}
main,.top,footer{max-width:110rem;margin:0 auto;padding:0 1rem}
h1{font-size:1.35rem;margin:.9rem 0 .1rem}h1,h2,h3,p,li,figcaption,summary{overflow-wrap:anywhere}
h2{font-size:1.02rem;margin:0 0 .5rem}h3{font-size:.95rem;margin:.8rem 0 .3rem}
a{color:var(--accent)}p{margin:.3rem 0}.soft{color:var(--soft)}.good{color:var(--good)}.wrong{color:var(--wrong)}
.odd{color:var(--odd)}.good,.wrong,.odd{font-weight:600}
:focus-visible{outline:3px solid var(--accent);outline-offset:2px}
.skip{position:absolute;left:-99rem}.skip:focus{left:1rem;top:.5rem;background:var(--card);padding:.5rem}
.simulated{position:sticky;top:0;z-index:1;margin:0;padding:.6rem 1rem;text-align:center;font-weight:700;
color:var(--on-hazard);background:var(--hazard);border-bottom:.35rem solid var(--on-hazard)}
.grid{display:grid;grid-template-columns:repeat(12,minmax(0,1fr));gap:.8rem;margin:.8rem 0}
section{grid-column:span 12;background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.8rem 1rem;
container-type:inline-size}
@media (min-width:72rem){.third{grid-column:span 4}.wide{grid-column:span 8}}
@media (min-width:92rem){.half{grid-column:span 6}}
.tiles{display:flex;flex-wrap:wrap;gap:.4rem 2rem;margin:0}.tiles div{min-width:9rem}.tiles dt{color:var(--soft);
font-size:.85rem}.tiles dd{margin:0;font-weight:600;overflow-wrap:anywhere}.tiles small{font-weight:400}
.beside{display:flex;flex-wrap:wrap;gap:.4rem 1.5rem}.beside>*{flex:1 1 26rem;min-width:0}
.scroll{overflow-x:auto;max-width:100%;container-type:inline-size}
table{border-collapse:collapse;width:100%;font-size:.9rem}caption{text-align:left;color:var(--soft);padding:.2rem 0}
th,td{text-align:left;padding:.22rem .8rem .22rem 0;border-bottom:1px solid var(--line);vertical-align:top;
font-weight:400;overflow-wrap:break-word}thead th{color:var(--soft);font-size:.82rem;vertical-align:bottom}
tbody th{font-weight:600;overflow-wrap:anywhere;min-width:5rem}
.short{white-space:nowrap}.name{display:inline-block;min-width:8rem;overflow-wrap:anywhere}.long{min-width:10rem;display:block;overflow-wrap:anywhere}
figure{margin:0}.number{text-align:right;font-variant-numeric:tabular-nums}
.matrix td,.matrix th{padding:.3rem .4rem;border:1px solid var(--line);min-width:0;overflow-wrap:break-word}
.matrix td{text-align:center;
font-variant-numeric:tabular-nums}.matrix td span{font-weight:600}.matrix small{display:block;font-size:.78em}
@container (max-width:27rem){.matrix{font-size:.72rem}.matrix td,.matrix th{padding:.2rem .1rem}}
.heat1{background:rgb(var(--heat)/.1)}.heat2{background:rgb(var(--heat)/.18)}.heat3{background:rgb(var(--heat)/.27)}
.heat4{background:rgb(var(--heat)/.36)}.heat5{background:rgb(var(--heat)/.45)}
pre{overflow:auto;max-height:34rem;font:.8rem/1.4 ui-monospace,"DejaVu Sans Mono",monospace;background:var(--paper);
border:1px solid var(--line);padding:.6rem}
summary{cursor:pointer}button{font:inherit;color:inherit;background:var(--card);border:1px solid var(--soft);
border-radius:.3rem;padding:.15rem .6rem}
svg{display:block;width:100%;height:auto;max-width:46rem}svg text{fill:var(--soft);font-size:12px}
svg .axis{stroke:var(--line)}svg .now{stroke:var(--accent);fill:none;stroke-width:2.5}
svg .dot{fill:var(--accent)}svg .band{fill:var(--band)}svg .past{stroke:var(--past);fill:none}
svg .low{stroke:var(--wrong);fill:none;stroke-dasharray:4 3}svg .bad{fill:var(--wrong)}svg .why{fill:var(--odd)}
svg .bar{fill:var(--band);stroke:var(--accent)}svg.spark{width:7.5rem;height:1.6rem}
svg .paper{fill:var(--card)}svg .square{fill:var(--card)}svg .heat{fill:rgb(var(--heat))}
svg .said{fill:var(--ink);font-weight:600}
svg .small{font-size:10px;fill:var(--ink)}svg.squares{max-width:34rem}
@container (max-width:30rem){svg text{font-size:18px}}
footer{padding-bottom:2rem;color:var(--soft)}
@media print{section{break-inside:avoid}.simulated{position:static}}
"""

_CARDS = """
@container (max-width:WIDTH){
.TABLE,.TABLE tbody,.TABLE tr,.TABLE th,.TABLE td{display:block}
.TABLE caption{display:block}
.TABLE thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
.TABLE tr{border-bottom:1px solid var(--line);padding:.35rem 0}
.TABLE th,.TABLE td{border:0;padding:.08rem 0;text-align:left;overflow-wrap:anywhere}
.TABLE td[data-label]{display:grid;grid-template-columns:minmax(0,2fr) minmax(0,5fr);gap:.6rem}
.TABLE td[data-label]::before{content:attr(data-label);color:var(--soft);font-size:.92em}
.TABLE .long,.TABLE .name{min-width:0}
}
"""
"""How a table of too many columns for its place is shown: a card for each row, each value beside its column's name."""

CSS = _BASE + "".join(
    _CARDS.replace("TABLE", kind).replace("WIDTH", width)
    for kind, width in (("few", "24rem"), ("some", "36rem"), ("many", "40rem"))
)
