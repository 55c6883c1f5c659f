"""The explorer as a widget of a notebook, which gives back what is selected on the page (the extra ``notebook``)."""

from pathlib import Path
from typing import Any

from cml.errors import UserError, require_extra

with require_extra("notebook", "The explorer as a widget"):
    import anywidget
    import traitlets

_MOST_BYTES = 64 << 20  # of a page that is sent to the notebook

# The page runs in a sandboxed frame; of its messages only numbers and texts are taken, and never run.
SCRIPT = """
function render({ model, el }) {
  const frame = document.createElement("iframe");
  frame.setAttribute("sandbox", "allow-scripts allow-downloads");
  frame.title = "explorer";
  frame.style.cssText = "width: 100%; border: 0; height: 960px";
  frame.srcdoc = model.get("page");
  const listen = (event) => {
    if (event.source !== frame.contentWindow || event.data?.cml !== "selection") return;
    model.set("selection", event.data.items.map(Number));
    model.set("names", event.data.names.map(String));
    model.save_changes();
  };
  window.addEventListener("message", listen);
  el.append(frame);
  return () => window.removeEventListener("message", listen);
}
export default { render };
"""


class ExplorerWidget(anywidget.AnyWidget):
    """The explorer in a notebook; see ``Explorer.widget``."""

    _esm = SCRIPT
    page = traitlets.Unicode().tag(sync=True)
    # positions of the selected items among those of the page, in its order; none at first
    selection = traitlets.List(traitlets.Int()).tag(sync=True)
    names = traitlets.List(traitlets.Unicode()).tag(sync=True)


def make_explorer_widget(path: Path) -> Any:  # noqa: ANN401 - anywidget has no types of its own
    """Make the widget of a page."""
    if path.with_name(f"{path.stem}.pictures").is_dir() or path.stat().st_size > _MOST_BYTES:
        raise UserError(
            f"{path}: a notebook shows a page of at most 10,000 items. Open the page in a browser, or explore fewer."
        )
    return ExplorerWidget(page=path.read_text(encoding="utf-8"))
