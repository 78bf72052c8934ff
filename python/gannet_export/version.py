"""Versions recorded in an exported folder."""

VERSION = "0.1.0"
FORMAT = 1  # in graph.*.json; readers refuse any other number
