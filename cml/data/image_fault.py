"""What is wrong with an image."""


class ImageFault(ValueError):
    """What is wrong with an image file, to follow its name: "cannot be read: ...", without a full stop."""
