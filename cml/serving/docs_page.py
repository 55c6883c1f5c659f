"""The page ``/docs``, on which searches can be tried: Swagger UI, made readable for keyboards and screen readers."""

from fastapi import FastAPI, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, RedirectResponse

STATIC = "/static-offline-docs"  # where FastAPIOffline mounts the files of Swagger UI
PARAMETERS = {"deepLinking": False, "defaultModelsExpandDepth": -1}  # no links within buttons, no list of schemas

# Swagger UI's own colours have contrasts of 1.9 to 3.8, where 4.5 is readable.
STYLE = """<style>
.swagger-ui .info .title small { background: #5b6270 }
.swagger-ui .info .title small.version-stamp { background: #4a6b00 }
.swagger-ui .info .url { color: #1f5fae }
.swagger-ui .opblock.opblock-post .opblock-summary-method { background: #1b7a4e }
.swagger-ui .opblock.opblock-get .opblock-summary-method { background: #1f64b0 }
.swagger-ui .parameter__in, .swagger-ui .parameter__extension { color: #5a5a5a }
</style>
"""
# What it draws later: headings that follow the first level, names of tables, and code that scrolls.
SCRIPT = """<script>
new MutationObserver(() => {
  document.querySelectorAll("h3, h4, h5").forEach((h) => h.setAttribute("aria-level", Number(h.tagName[1]) - 1));
  document.querySelectorAll("table.responses-table").forEach((table) => table.setAttribute("aria-label", table.id));
  document.querySelectorAll("pre.microlight").forEach((code) => code.setAttribute("tabindex", "0"));
}).observe(document.getElementById("swagger-ui"), { childList: true, subtree: true });
</script>
"""


def add_docs_page(app: FastAPI) -> None:
    """Add the page, and lead from ``/`` to it."""

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> HTMLResponse:
        root = request.scope.get("root_path", "")
        page = get_swagger_ui_html(
            openapi_url=f"{root}{app.openapi_url}",
            title=app.title,
            swagger_js_url=f"{root}{STATIC}/swagger-ui-bundle.js",
            swagger_css_url=f"{root}{STATIC}/swagger-ui.css",
            swagger_favicon_url=f"{root}{STATIC}/favicon.png",
            swagger_ui_parameters=PARAMETERS,
        )
        return HTMLResponse(make_accessible(bytes(page.body).decode("utf-8")))

    @app.get("/", include_in_schema=False)
    async def start(request: Request) -> RedirectResponse:
        return RedirectResponse(f"{request.scope.get('root_path', '')}/docs")


def make_accessible(html: str) -> str:
    """Give the page a language, a main part, and colours of enough contrast."""
    before, box, after = html.replace("<html>", '<html lang="en">').partition('<div id="swagger-ui">')
    after = after.replace("</div>", f"</main>\n{SCRIPT}", 1)
    return f"{before.replace('</head>', f'{STYLE}</head>')}{box.replace('div', 'main')}{after}"
