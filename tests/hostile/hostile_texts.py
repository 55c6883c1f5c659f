"""Texts that would run a script or ask the network, were they taken for markup."""

from __future__ import annotations


def attacks(address: str) -> list[str]:
    act = f"document.title='ran';new Image().src='{address}/ran'"
    return [
        f"<script>{act}</script>",
        f'"><img src="{address}/image" onerror="{act}">',
        f"'><svg onload=\"{act}\"><image href='{address}/svg'/></svg>",
        f"</title></style></script><script src={address}/script></script>",
        f"</style><style>@import url({address}/sheet); * {{ background: url({address}/background) }}</style>",
        f'<iframe src="{address}/frame" srcdoc="<script>parent.{act}</script>"></iframe>',
        f'<link rel=stylesheet href="{address}/link"><meta http-equiv=refresh content="0;url={address}/refresh">',
        f'<base href="{address}/"><a href="javascript:{act}" autofocus onfocus="{act}">x</a>',
        f"{{{{ 7 * 7 }}}} {{% include '{address}' %}} javascript:{act}",
        f"\x00\ud800\u202e<body onload={act}>",
        f"</script>\u2028<script>{act}</script>\u2029<!--<script>{act}//-->",
        f"]]><math><mtext><table><mglyph><style><!--</style><img src={address}/image onerror={act}>",
        f"&lt;script&gt;{act}&lt;/script&gt; &#60;img src={address}/image&#62;",
        f"\u05d0\u0628 \u2067<b>\u2066\x1b[31m\r\n\t'\"`{'very long ' * 3000}<script>{act}</script>",
        f"<details open ontoggle={act}><template><form><button formaction=javascript:{act}>",
    ]
