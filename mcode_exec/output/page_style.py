"""How a session's page looks: dark and light, on a desk and on a phone, and on paper.

One constant; its digest is what the page's policy lets a browser apply, and
nothing else is.
"""

from __future__ import annotations

import base64

STYLE = """
:root{color-scheme:light dark;--ground:#fff;--text:#1c2128;--soft:#59636e;--line:#d1d9e0;--box:#f6f8fa;
--ask:#eef5ff;--link:#0757ba;--good:#1a7f37;--bad:#b3261e}
@media (prefers-color-scheme:dark){:root{--ground:#0e1116;--text:#e6edf3;--soft:#9aa4ae;--line:#30363d;
--box:#161b22;--ask:#13233a;--link:#71b0ff;--good:#4ac26b;--bad:#ff8a80}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0 auto;padding:1rem;max-width:54rem;background:var(--ground);color:var(--text);
font:1rem/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;overflow-wrap:anywhere}
h1{font-size:1.35rem;line-height:1.3;margin:.2rem 0 .6rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem .9rem;margin:0 0 1.2rem;font-size:.9rem}
dt{color:var(--soft)}dd{margin:0;min-width:0}
section{border-top:1px solid var(--line);padding:.9rem 0}
article{margin:0 0 .9rem}
article.user{background:var(--ask);border-radius:.5rem;padding:.6rem .8rem}
header{color:var(--soft);font-size:.82rem;margin-bottom:.2rem;display:flex;flex-wrap:wrap;gap:.1rem .7rem}
header b{color:var(--text)}
p{margin:.35rem 0;white-space:pre-wrap;unicode-bidi:isolate}
p.heading{font-weight:600;font-size:1.06rem;margin-top:.8rem}
p.note,footer{color:var(--soft);font-size:.85rem}
pre{margin:.4rem 0;padding:.6rem .7rem;background:var(--box);border:1px solid var(--line);border-radius:.4rem;
overflow-x:auto;white-space:pre;
font:.82rem/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;
unicode-bidi:isolate;direction:ltr;max-height:30rem;overflow-y:auto}
code{font:.88em ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;background:var(--box);
border-radius:.25rem;padding:.08em .3em}
details{margin:.3rem 0}
summary{cursor:pointer;padding:.25rem 0}
summary code{white-space:pre-wrap}
details.tool{border-left:3px solid var(--line);padding-left:.7rem}
details.tool.failed{border-left-color:var(--bad)}
details.tool>summary span{color:var(--good);font-size:.85rem}
details.tool.failed>summary span{color:var(--bad)}
details.folded{border:1px dashed var(--line);border-radius:.4rem;padding:.2rem .7rem}
a{color:var(--link)}
ul{margin:.2rem 0;padding-left:1.2rem;font-size:.85rem}
@media (max-width:34rem){body{padding:.7rem;font-size:.97rem}dl{grid-template-columns:1fr;gap:0}dd{margin:0 0 .35rem}}
@media print{pre{max-height:none;white-space:pre-wrap}}
"""


def policy(style: str = STYLE) -> str:
    """The content security policy of a page: nothing but this style, whatever is in it."""
    import hashlib

    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
