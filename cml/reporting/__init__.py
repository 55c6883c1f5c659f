"""Visual results: the retrieval report, curves, and labels drawn on pictures."""

from cml.reporting.curves import write_curves
from cml.reporting.drawing import contact_sheet, draw_gauge, draw_regions, draw_skeleton, draw_text
from cml.reporting.metric_curves import Panel, write_metric_curves
from cml.reporting.retrieval_report import Picture, ReportRow, write_retrieval_page

__all__ = [
    "Panel",
    "Picture",
    "ReportRow",
    "contact_sheet",
    "draw_gauge",
    "draw_regions",
    "draw_skeleton",
    "draw_text",
    "write_curves",
    "write_metric_curves",
    "write_retrieval_page",
]
