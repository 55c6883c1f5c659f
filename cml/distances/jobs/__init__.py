"""All label distances of a dataset, strip by strip: resumable, verified, on one machine or a cluster."""
