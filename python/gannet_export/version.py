"""The versions that an exported folder states."""

VERSION = "0.1.0"
FORMAT = 1  # of graph.*.json: a reader refuses every other number
