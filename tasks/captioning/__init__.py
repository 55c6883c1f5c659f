"""Image captioning on frozen features, the paper's last experiment: ``cml compare captioning``."""
