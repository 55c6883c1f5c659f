"""Visual results: the gallery page, curves, and labels drawn on pictures."""

from cml.reporting.curves import write_curves
from cml.reporting.drawing import contact_sheet, draw_gauge, draw_regions, draw_skeleton, draw_text
from cml.reporting.gallery import GalleryRow, Picture, write_gallery
from cml.reporting.metric_curves import Panel, write_metric_curves

__all__ = [
    "GalleryRow",
    "Panel",
    "Picture",
    "contact_sheet",
    "draw_gauge",
    "draw_regions",
    "draw_skeleton",
    "draw_text",
    "write_curves",
    "write_gallery",
    "write_metric_curves",
]
