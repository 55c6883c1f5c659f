"""The label distance of room layouts, 1 - mIoU, and its kernel."""
