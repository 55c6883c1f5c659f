"""Generators of the documentation: tables of results, reference pages and figures."""
