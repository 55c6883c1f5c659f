"""The page ``/docs``, on which searches can be tried: Swagger UI, made readable for keyboards and screen readers."""

import re
from importlib.resources import files

from fastapi import FastAPI, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, RedirectResponse

STATIC = "/static-offline-docs"  # where FastAPIOffline mounts the files of Swagger UI
PARAMETERS = {"deepLinking": False, "defaultModelsExpandDepth": -1}  # no links within buttons, no list of schemas


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
    folder = files("cml.serving") / "templates"
    style, script = ((folder / f"docs_page.{kind}").read_text("utf-8") for kind in ("css", "js"))
    html = re.sub("(?<=<)html(?=>)", 'html lang="en"', html, count=1)
    before, box, after = html.partition('div id="swagger-ui"')
    after = after.replace("</div>", f"</main>\n<script>\n{script}</script>\n", 1)
    return f"{before.replace('</head>', f'<style>{style}</style></head>')}{box.replace('div', 'main')}{after}"
