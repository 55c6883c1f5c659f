"""Image captioning on frozen features: the paper's last experiment, with a reference captioner.

A network trained on caption distances is compared, as the visual representation of a captioner, with the same network
as ImageNet left it. ``model.py`` is the captioner, ``training.py`` its two ways of training, ``scores.py`` the field's
scores, ``comparison.py`` the command ``cml compare captioning``. Not for: the features (``cml export captioning``).
"""
