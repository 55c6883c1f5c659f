"""The commands of graded search: ``cml prepare grades``, ``cml train grades``, and what others do with such runs."""
